#include "solver/search/solve.h"

#include "jobs.h"
#include "solver/check/check_plan.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/search/anneal.h"
#include "solver/search/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace tapas::solver {
namespace {

TEST(Solve, BoundHoldsAndPlanIsNearTheBestOfAllPlansOnSmallJobs) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Job job = testing::uneven_job(seed, 6, 2, 4, 12);
    job.search.max_stages = 4;
    const auto outcome = solve(job);
    ASSERT_TRUE(outcome) << outcome.error().message;
    const Pool pool = usable_nodes(job.cluster);
    PlanEvaluator evaluator(job);
    double best = std::numeric_limits<double>::infinity();
    std::uint64_t plans = 0;
    for (std::uint16_t width = 1; width <= 4; width = static_cast<std::uint16_t>(2 * width)) {
      for (std::uint32_t stages = 1; stages <= 4; ++stages) {
        for (std::uint32_t replicas = 1; replicas * stages <= 8U / width; ++replicas) {
          for (const Layout layout : {Layout::kStagesTogether, Layout::kReplicasTogether}) {
            testing::for_each_cut(6, stages, [&](const auto& cuts) {
              Plan plan = testing::simple_plan(job, cuts, replicas, width);
              plan.placement =
                  place(job.cluster, pool, {{0, width, false}, stages, replicas, 0}, layout);
              plan.sp_width = width;
              if (plan_violations(job, plan).empty()) {
                ++plans;
                best = std::min(best, evaluator.step_time_s(plan, {}));
              }
            });
          }
        }
      }
    }
    ASSERT_GT(plans, 100U);
    const Prediction& p = outcome->plan.predicted;
    EXPECT_LE(p.lower_bound_s, best * (1 + 1e-12)) << "seed " << seed;
    EXPECT_LE(p.step_time_s, best * 1.002) << "seed " << seed;
    EXPECT_NEAR(p.gap_ratio, p.step_time_s / p.lower_bound_s - 1, 1e-12);
  }
}

TEST(Solve, FindsASanePlanForTheLargeJob) {
  const Job job = testing::gpt3_175b_on_1024();
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_TRUE(check_plan(job, outcome->plan).has_value());
  EXPECT_LT(outcome->plan.predicted.gap_ratio, 0.01) << outcome->summary;
  EXPECT_GT(outcome->plan.predicted.peak_fraction, 0.40) << outcome->summary;
  EXPECT_LT(outcome->plan.predicted.peak_fraction, 0.62) << outcome->summary;
  EXPECT_TRUE(outcome->complete);
  EXPECT_GT(outcome->shapes_tried, outcome->shapes_pruned);
}

TEST(Solve, IsDeterministic) {
  const Job job = testing::small_job(12, 4, 8, 64);
  const auto a = solve(job);
  const auto b = solve(job);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->plan.pp_splits, b->plan.pp_splits);
  EXPECT_EQ(a->plan.placement, b->plan.placement);
  EXPECT_EQ(a->summary, b->summary);
}

TEST(Solve, AnnealingComesNearTheEnumeration) {
  Job job = testing::small_job(22, 8, 8, 96);
  const auto exact = solve(job);
  job.search.anneal = true;
  const auto annealed = solve(job);
  ASSERT_TRUE(exact && annealed);
  EXPECT_GE(annealed->plan.predicted.step_time_s, annealed->plan.predicted.lower_bound_s);
  EXPECT_LE(annealed->plan.predicted.step_time_s, exact->plan.predicted.step_time_s * 1.03);
}

TEST(Solve, UsesTheDocumentModelWhenAsked) {
  Job job = testing::gpt3_175b_on_1024();
  job.search.model = CostModelKind::kDocument;
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_TRUE(check_plan(job, outcome->plan).has_value());
  EXPECT_GT(outcome->plan.predicted.peak_fraction, 0.76) << outcome->summary;
}

TEST(Solve, RecomputesTheLeastWhenMemoryIsTight) {
  Job job = testing::small_job(14, 2, 4, 64);
  job.search.tp_widths = {1};
  job.search.min_stages = 4;
  job.search.max_stages = 4;
  const auto roomy = solve(job);
  ASSERT_TRUE(roomy);
  const auto& memory = roomy->plan.predicted.stage_memory_bytes;
  job.limits.device_memory_bytes = 0.97 * *std::max_element(memory.begin(), memory.end()) /
                                   (1 - job.limits.memory_reserve_ratio);
  const auto tight = solve(job);
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_TRUE(check_plan(job, tight->plan).has_value());
  EXPECT_GE(tight->plan.predicted.step_time_s, roomy->plan.predicted.step_time_s);
}

TEST(Solve, ExplainsWhatWouldFit) {
  Job job = testing::small_job(12, 2, 4, 32);
  job.limits.device_memory_bytes = 0.1e9;
  const auto outcome = solve(job);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kInfeasible);
  for (const char* words : {"needs", "of 0.1 GB", "what would fit", "devices with"}) {
    EXPECT_NE(outcome.error().message.find(words), std::string::npos) << outcome.error().message;
  }
}

TEST(Solve, NamesAStepTimeLimitOutOfReach) {
  Job job = testing::small_job(12, 2, 4, 32);
  job.limits.step_time_s = 1e-3;
  const auto outcome = solve(job);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(outcome.error().message.find("limits.step_time_s"), std::string::npos);
}

TEST(Solve, LeavesSparesAlone) {
  Job job = testing::small_job(12, 3, 4, 32);
  job.cluster.nodes[1].spare = true;
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome);
  for (const auto& row : outcome->plan.placement) {
    for (const Position& position : row) {
      EXPECT_NE(position.node, NodeId(1));
    }
  }
}

TEST(Solve, StopsWhenAsked) {
  const Job job = testing::small_job(12, 4, 8, 64);
  std::stop_source source;
  SolveOptions options;
  options.stop = source.get_token();
  double last = 0;
  options.progress = [&](double done, double) {
    EXPECT_GE(done, last);
    last = done;
    source.request_stop();
  };
  const auto outcome = solve(job, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_FALSE(outcome->complete);
  EXPECT_TRUE(check_plan(job, outcome->plan).has_value());

  const auto at_once = solve(job, options);
  ASSERT_FALSE(at_once);
  EXPECT_EQ(at_once.error().code, ErrorCode::kTimeout);
}

TEST(Place, KeepsRingsUnderOneTorWhenTheyFit) {
  const Job job = testing::gpt3_175b_on_1024();
  const Pool pool = usable_nodes(job.cluster);
  const auto placement =
      place(job.cluster, pool, {{0, 4, true}, 14, 18, 86}, Layout::kReplicasTogether);
  std::uint32_t crossing = 0;
  for (std::uint32_t s = 0; s < 14; ++s) {
    for (const auto& row : placement) {
      const Node& a = job.cluster.nodes[placement[0][s].node.value()];
      const Node& b = job.cluster.nodes[row[s].node.value()];
      crossing += a.pod != b.pod ? 1 : 0;
    }
  }
  EXPECT_EQ(crossing, 0U);
}

}  // namespace
}  // namespace tapas::solver
