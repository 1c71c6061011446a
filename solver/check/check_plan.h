#pragma once

#include "base/result.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <string>
#include <vector>

namespace tapas::solver {

/// Re-verifies a plan from first principles: coverage of layers, shapes of all arrays, TP widths
/// (a group as wide as its layers say, or narrower by a divisor where the job's runtime can),
/// placement (every device once, groups inside one node, one kind of device per group, no spare
/// unless used whole; what a narrower group leaves idle counts as used), microbatch sum, memory of
/// every stage by formulas of its own, limits, the job's capabilities. Shares no code with the
/// search or the cost model. Returns every violation, one sentence each; empty = valid.
[[nodiscard]] std::vector<std::string> plan_violations(const Job& job, const Plan& plan);

/// kInvalid with the first violations when there are any.
[[nodiscard]] Result<void> check_plan(const Job& job, const Plan& plan);

}  // namespace tapas::solver
