#pragma once

#include "base/result.h"
#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

namespace tapas::solver {

class PlanEvaluator;

/// What a rank of (replica, stage) should spend in one microbatch on a healthy device, in seconds;
/// compute only.
struct StageCompute {
  double forward_s = 0;
  double backward_s = 0;  ///< recomputation included
};

/// Predicts a plan with the job's cost model (docs/cost-model.md). Fills all of Prediction but
/// lower_bound_s and gap_ratio, which only a search knows. Requires a plan that passes
/// check_plan().
[[nodiscard]] Prediction predict(const Job& job, const Plan& plan, const ClusterState& state = {});
/// With an evaluator of the job as the plan sizes its microbatches.
[[nodiscard]] Prediction predict(PlanEvaluator& evaluator, const Plan& plan,
                                 const ClusterState& state = {});

/// Compute per stage of each replica, [replica][stage], healthy: what measurements are divided by.
[[nodiscard]] std::vector<std::vector<StageCompute>> stage_compute(const Job& job,
                                                                   const Plan& plan);

}  // namespace tapas::solver
