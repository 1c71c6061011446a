#pragma once

#include "base/result.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"

#include <string>
#include <vector>

namespace tapas::solver {

/// What solving the whole job anew comes to, beside a micro-replan of the same request.
struct FullReplan {
  Plan plan;            ///< epoch 0; passes check_plan()
  std::string without;  ///< what it keeps clear of: "drained nodes", "drained and slow nodes"
  std::vector<LayerMove> moves;
  double step_before_s = 0;  ///< current plan under the measured state, calibrated
  double step_after_s = 0;
  double switch_s = 0;  ///< pause and transfer
  double expected_episode_s = 0;
  /// Why the job cannot switch to it while it runs, one sentence each; it would have to be
  /// restarted then.
  std::vector<std::string> obstacles;

  /// Over the expected episode, when the job runs its current plan for the `solve_s` that finding
  /// this one takes; the switch paid.
  [[nodiscard]] double net_gain_s(double solve_s) const;
};

/// The last resort: solve() for the cluster without the drained nodes, and again without the slow
/// ones, healthy spares in their places; of the two the one that gains more. Takes as long as
/// solve(), and moves most layers. Pins do not bind it: to keep a node as it is is what a
/// micro-replan does. kInfeasible when no plan fits what is left of the cluster.
[[nodiscard]] Result<FullReplan> full_replan(const Job& job, const ReplanRequest& request,
                                             const SolveOptions& options = {});

}  // namespace tapas::solver
