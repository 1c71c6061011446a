#pragma once

#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/replan/micro_replan.h"
#include "tests/replan/value.h"

#include <cstdint>

/// The best plan of a small instance, proven.
namespace tapas::solver::testing {

struct Exact {
  Plan plan;
  Value value;
  bool proven = true;           ///< false: given up, the best plan found
  std::uint64_t looked_at = 0;  ///< whole plans timed
};

/// Over which node holds which position, the cuts of every replica and its microbatches, as the
/// job's capabilities, pins and drains allow; recomputation is the least that fits each stage. Of
/// the plans with the fewest drained nodes the least time per useful step, as Judge values it.
/// `known`: some plan that the request allows, the better the faster the proof. Requires whole
/// nodes as positions and gradients that are reduced after the last backward.
/// Gives up after `effort` steps of the search; the default takes about ten seconds.
[[nodiscard]] Exact exact_optimum(const Job& job, const ReplanRequest& request, const Plan& known,
                                  std::uint64_t effort = 30'000'000);

/// The same by plain enumeration, every plan valued whole: for a handful of nodes and layers.
[[nodiscard]] Exact enumerate(const Job& job, const ReplanRequest& request);

}  // namespace tapas::solver::testing
