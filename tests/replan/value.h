#pragma once

#include "solver/cost/plan_evaluator.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/replan/micro_replan.h"

#include <cstddef>

namespace tapas::solver::testing {

/// What a plan is worth to a request, by the cost model alone.
struct Value {
  std::size_t drained_in_use = 0;  ///< nodes
  double step_s = 0;
  double switch_s = 0;
  /// The time per useful step over the episode, the switch paid; steps that a switch leaves no time
  /// for still compare by their length.
  double per_useful_step_s = 0;
};
[[nodiscard]] bool better(const Value& a, const Value& b);
/// How far `a` is above the optimum, as a share; infinite when it keeps more drained nodes.
[[nodiscard]] double gap_to(const Value& a, const Value& optimum);

/// Step and switch to the time per useful step. `switch_s` 0 = nothing changes.
[[nodiscard]] double per_useful_step_s(double step_s, double switch_s, double episode_s);

/// Values plans of one request. Both must outlive it.
class Judge {
 public:
  Judge(const Job& job, const ReplanRequest& request)
      : job_(job), request_(request), evaluator_(job) {}

  /// Requires a plan that passes check_plan().
  [[nodiscard]] Value value(const Plan& plan);
  /// Whether the running job can be switched to the plan: valid, and the switch is.
  [[nodiscard]] bool allows(const Plan& plan) const;
  [[nodiscard]] PlanEvaluator& evaluator() { return evaluator_; }

 private:
  const Job& job_;
  const ReplanRequest& request_;
  PlanEvaluator evaluator_;
};

/// The same work on the same devices with the same recomputation.
[[nodiscard]] bool same_plan(const Plan& a, const Plan& b);

/// What a proposal may not do for this request, one sentence each: an invalid plan or switch, a
/// pinned node that changed, a capability that the job lacks. Empty = fine.
[[nodiscard]] std::vector<std::string> breaches(const Job& job, const ReplanRequest& request,
                                                const Plan& plan);

}  // namespace tapas::solver::testing
