#pragma once

#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <string>
#include <vector>

namespace tapas::solver {

/// What forbids to switch a running job from one plan to the other, one sentence each; empty when
/// nothing does. Both plans pass check_plan(). Donors keep their layers until the switch is
/// decided, so at the step boundary a device holds the parameters, gradients and optimizer state of
/// its old layers and the parameters and optimizer state of those that arrive, and no activations.
/// Also what the job's capabilities forbid to change.
[[nodiscard]] std::vector<std::string> switch_violations(const Job& job, const Plan& from,
                                                         const Plan& to);

}  // namespace tapas::solver
