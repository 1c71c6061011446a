#pragma once

#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <vector>

namespace tapas::solver {

/// Seconds that the moves of a switch take when all run at once: the busiest NICs of a node, out or
/// in, the busiest slow path between two nodes, or the busiest device inside a node, at the speeds
/// measured. The job's switch_pause_s comes on top.
[[nodiscard]] double transfer_s(const Job& job, const std::vector<LayerMove>& moves,
                                const ClusterState& state);

}  // namespace tapas::solver
