#include "every_plan.h"

#include "solver/check/check_plan.h"
#include "solver/cost/document_model.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/search/solve.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tapas::solver {
namespace {

constexpr double kClose = 1e-9;

SolveOptions thorough() {
  SolveOptions options;
  options.branch_budget = 1'000'000'000;
  return options;
}

TEST(Solve, EqualsTheBestOfAllPlansInThePhysicalModel) {
  int feasible = 0;
  std::uint64_t plans = 0;
  for (std::uint64_t seed = 1; seed <= 1200; ++seed) {
    const Job job = testing::random_small_job(seed);
    const testing::EveryPlan every = testing::try_every_plan(job);
    plans += every.plans;
    const auto outcome = solve(job, thorough());
    ASSERT_EQ(outcome.has_value(), every.plans > 0)
        << "seed " << seed << ": " << (outcome ? outcome->summary : outcome.error().message);
    if (!outcome) {
      EXPECT_EQ(outcome.error().code, ErrorCode::kInfeasible);
      continue;
    }
    ++feasible;
    const Prediction& p = outcome->plan.predicted;
    ASSERT_NEAR(p.step_time_s, every.step_s, kClose * every.step_s)
        << "seed " << seed << ": " << outcome->summary;
    EXPECT_TRUE(outcome->certificate.optimal) << "seed " << seed << ": " << outcome->summary;
    EXPECT_LE(p.lower_bound_s, every.step_s * (1 + kClose)) << "seed " << seed;
    // The enumeration's own plan is what it says.
    if (seed % 10 == 0) {
      EXPECT_NEAR(PlanEvaluator(job).step_time_s(every.plan, {}), every.step_s,
                  kClose * every.step_s);
      EXPECT_EQ(plan_violations(job, every.plan), std::vector<std::string>{}) << "seed " << seed;
    }
  }
  EXPECT_GT(feasible, 700);
  EXPECT_GT(plans, 100'000U);
}

TEST(Solve, EqualsTheLeastObjectiveOfAllPlansInTheDocumentModel) {
  int feasible = 0;
  for (std::uint64_t seed = 5001; seed <= 5800; ++seed) {
    Job job = testing::random_small_job(seed);
    testing::Draw draw(seed);
    job.search.model = CostModelKind::kDocument;
    job.search.weights = {draw.between(0U, 1U) * draw.between(0.0, 1e-11), draw.between(0.0, 0.3),
                          draw.between(0.0, 1.0)};
    const testing::EveryPlan every = testing::try_every_plan(job);
    const auto outcome = solve(job);
    ASSERT_EQ(outcome.has_value(), every.plans > 0)
        << "seed " << seed << ": " << (outcome ? outcome->summary : outcome.error().message);
    if (!outcome) {
      continue;
    }
    ++feasible;
    EXPECT_TRUE(outcome->certificate.optimal) << "seed " << seed;
    ASSERT_NEAR(outcome->certificate.objective, every.objective, kClose * every.objective)
        << "seed " << seed << ": " << outcome->summary;
    EXPECT_NEAR(document_objective(job, outcome->plan), every.objective, kClose * every.objective)
        << "seed " << seed;
    EXPECT_LE(outcome->plan.predicted.lower_bound_s, every.step_s * (1 + kClose));
  }
  EXPECT_GT(feasible, 400);
}

}  // namespace
}  // namespace tapas::solver
