#pragma once

#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <vector>

namespace tapas::solver {

/// Seconds from the first transfer of a switch.
struct TransferTime {
  double start_s = 0;
  double end_s = 0;
};

/// When each of the moves runs, in the order of `moves`: a node sends one layer at a time and
/// receives one at a time, inside a node the same holds for its devices, and pairs that have no end
/// in common run at once. Always that layer goes next which can start first; of several the one
/// whose ends have most to move. Nothing waits for free ends, so between nodes the last one ends
/// before the busiest sender's and the busiest receiver's times together: less than twice the best
/// order (dense schedules of an open shop; Barany and Fiala 1982). Never before transfer_s(), which
/// lets all share the NICs at once. Memory does not depend on the order,
/// as donors keep their layers until the switch is decided (solver/check/check_switch.h).
[[nodiscard]] std::vector<TransferTime> transfer_times(const Job& job,
                                                       const std::vector<LayerMove>& moves,
                                                       const ClusterState& state);

}  // namespace tapas::solver
