#pragma once

#include "base/result.h"
#include "solver/cost/transfer_order.h"
#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace tapas::solver {

/// Slowdowns up to here are noise: no layer is so small that moving it would help, and no node so
/// slow that giving it up would.
inline constexpr double kSlow = 1.02;

struct ReplanRequest {
  Plan current;
  ClusterState state;
  std::vector<bool> pinned;       ///< per NodeId: keeps its stages and layers; empty = none
  double expected_episode_s = 0;  ///< how long the condition should still last
  /// Observed over predicted step time while healthy: puts predictions into the job's seconds.
  double calibration = 1.0;
};

/// How long to look. The answer depends on the request, the evaluations and the seed alone, unless
/// one of the others ends the search.
struct ReplanLimits {
  std::uint64_t evaluations = 4000;  ///< changed replicas timed
  std::uint64_t seed = 1;
  /// Until the proposal must stand, asked after every evaluation; empty = there is time. The search
  /// ends early enough to make the proposal.
  std::function<double()> time_left_s;
  std::stop_token stop;
};

/// One widening of the search and what it came to.
struct Tried {
  std::string what;               ///< "microbatches", "pair", "spares", "replicas", "nodes", "wide"
  double step_s = 0;              ///< of the best plan so far, calibrated
  std::uint64_t evaluations = 0;  ///< since the start
  double elapsed_s = 0;           ///< by the limits' clock; 0 without one
};

struct Proposal {
  bool improves = false;  ///< false: `plan` is the current one and `reason` says why it stays
  Plan plan;
  std::vector<LayerMove> moves;
  std::vector<TransferTime> transfers;        ///< when each runs; left to transfer_times()
  std::vector<std::uint32_t> stages_touched;  ///< distinct, over all replicas
  double step_before_s = 0;                   ///< current plan under the measured state, calibrated
  double step_after_s = 0;
  double lower_bound_s = 0;  ///< no plan can be faster in the measured state, calibrated
  double switch_s = 0;       ///< pause and transfer
  double net_gain_s = 0;     ///< over the expected episode, switch cost taken off
  std::uint64_t plans_evaluated = 0;
  std::vector<Tried> tried;
  std::string stopped;  ///< why the search ended, half a sentence
  std::string change;   ///< what the plan changes: "cut 2 of 16 replicas anew"
  std::string reason;   ///< one sentence
};

/// Re-optimises only what the measured slowdowns touch, within the job's capabilities, pins and
/// drains: the slow stage and its best partner first, then whole replicas, then which node sits
/// where (docs/micro-replan.md). Minimises the time per useful step over the expected episode,
/// switch included; among equals the fewest bytes moved. An idle node that is drained gets no work.
/// Never worse than doing nothing; the plan passes check_plan() and switch_violations(). Moving
/// back after a recovery is the same call with healthy devices.
[[nodiscard]] Result<Proposal> micro_replan(const Job& job, const ReplanRequest& request,
                                            const ReplanLimits& limits = {});

}  // namespace tapas::solver
