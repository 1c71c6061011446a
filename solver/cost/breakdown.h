#pragma once

#include "solver/cost/pipeline.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// One step of one device group, in seconds. The parts add up to the step time of the plan.
struct GroupSeconds {
  double forward = 0;
  double backward = 0;   ///< without recomputation
  double recompute = 0;  ///< forwards run again
  double tp_comm = 0;    ///< collectives of the TP group, those of recomputation too
  double pp_comm = 0;    ///< waiting for what is on its way from another stage
  double wait = 0;       ///< waiting for other groups to work
  double dp_sync = 0;    ///< gradient synchronisation beyond the last backward
  double update = 0;     ///< optimizer, and gathering what it wrote

  [[nodiscard]] double total() const {
    return forward + backward + recompute + tp_comm + pp_comm + wait + dp_sync + update;
  }
};

/// What one device of a group holds at its worst moment, in bytes. The parts add up to what the
/// cost model predicts.
struct GroupBytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  ///< of all microbatches in flight
  double recompute = 0;    ///< activations of the layer that is being recomputed
  double scratch = 0;      ///< while the largest operator runs
  double capacity = 0;     ///< what the parts may take
  double reserve = 0;      ///< held back beside it for the allocator and communication

  [[nodiscard]] double total() const {
    return parameters + gradients + optimizer + activations + recompute + scratch;
  }
};

struct Breakdown {
  double step_time_s = 0;
  std::vector<std::vector<GroupSeconds>> seconds;  ///< [replica][device group]
  std::vector<std::vector<GroupBytes>> bytes;      ///< the same
};

/// Requires a plan that passes check_plan(), for a job of the plan's micro-batch size.
[[nodiscard]] Breakdown break_down(const Job& job, const Plan& plan,
                                   const ClusterState& state = {});

/// What one replica's device groups do, from the first forward to the last backward.
struct ReplicaTimeline {
  std::uint32_t groups = 1;
  std::uint32_t microbatches = 0;
  std::vector<Action> actions;          ///< as PipelineClock::timeline()
  std::vector<double> recompute_share;  ///< per stage: of its backward's time
  std::vector<GroupEnd> ends;           ///< [device group]
  double update_at_s = 0;               ///< when the updates start
  double step_time_s = 0;
};
[[nodiscard]] ReplicaTimeline replica_timeline(const Job& job, const Plan& plan,
                                               std::uint32_t replica,
                                               const ClusterState& state = {});

}  // namespace tapas::solver
