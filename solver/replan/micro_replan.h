#pragma once

#include "base/result.h"
#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::solver {

struct ReplanRequest {
  Plan current;
  ClusterState state;
  double expected_episode_s = 0;  ///< how long the condition should still last
  /// Observed over predicted step time while healthy: puts predictions into the job's seconds.
  double calibration = 1.0;
};

struct Proposal {
  bool improves = false;  ///< false: `plan` is the current one and `reason` says why it stays
  Plan plan;
  std::vector<LayerMove> moves;
  std::vector<std::uint32_t> stages_touched;  ///< distinct, over all replicas
  double step_before_s = 0;                   ///< current plan under the measured state, calibrated
  double step_after_s = 0;
  double lower_bound_s = 0;  ///< no plan can be faster with these slowdowns, calibrated
  double switch_s = 0;       ///< pause and transfer
  double net_gain_s = 0;     ///< over the expected episode, switch cost taken off
  std::uint64_t plans_evaluated = 0;
  std::string reason;  ///< one sentence
};

/// Re-optimises only what the measured slowdowns touch: for each affected replica the slow stage
/// and its best partner are solved exactly (cut and recompute), then microbatch counts by exact
/// single transfers, as far as the job's capabilities allow. Never worse than doing nothing;
/// deterministic; the plan passes check_plan(). Moving back after a recovery is the same call with
/// healthy devices.
[[nodiscard]] Result<Proposal> micro_replan(const Job& job, const ReplanRequest& request);

}  // namespace tapas::solver
