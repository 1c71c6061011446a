#pragma once

#include "solver/cost/plan_evaluator.h"
#include "solver/search/shapes.h"

#include <string>
#include <vector>

namespace tapas::solver {

/// Why no shape fits: the stage that lacks least in the leanest plan, and what would fit.
[[nodiscard]] std::string explain_infeasible(PlanEvaluator& evaluator, const Pool& pool,
                                             const std::vector<Shape>& shapes);

}  // namespace tapas::solver
