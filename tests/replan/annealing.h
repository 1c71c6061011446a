#pragma once

#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/replan/micro_replan.h"

#include <array>
#include <cstdint>
#include <functional>

/// What else one could do when something gets slow, to compare the local search with. All return a
/// plan that the request allows, at worst the current one. Positions must be whole nodes.
namespace tapas::solver::testing {

/// Start temperatures, as shares of the time per useful step. Which is best differs from event to
/// event, so a fair rival has them all.
inline constexpr std::array<double, 4> kTemperatures = {3e-2, 3e-3, 1e-3, 3e-4};

/// Simulated annealing: exchanges of two nodes, cuts shifted by one layer, single microbatches
/// moved; cooled down to a hundredth. Goes by the p-norm of the rows instead of the slowest, so
/// that one of several bottlenecks counts; the best plan by the true value is kept. `spent`: share
/// of the time that is over.
[[nodiscard]] Plan anneal(const Job& job, const ReplanRequest& request, double temperature,
                          std::uint64_t seed, const std::function<double()>& spent);

/// The best single shift of a cut or microbatch, again and again.
[[nodiscard]] Plan greedy_shifts(const Job& job, const ReplanRequest& request,
                                 const std::function<bool()>& out_of_time);

/// Nodes stay where they are; every row is split anew so that its slowest stage is fastest, and
/// microbatches follow.
[[nodiscard]] Plan split_anew(const Job& job, const ReplanRequest& request);

}  // namespace tapas::solver::testing
