#include "solver/search/solve.h"

#include "jobs.h"
#include "solver/check/check_plan.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/search/anneal.h"
#include "solver/search/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>

namespace tapas::solver {
namespace {

TEST(Solve, BoundHoldsAndPlanIsNearTheBestOfAllPlansOnSmallJobs) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Job job = testing::uneven_job(seed, 6, 2, 4, 12);
    job.search.max_stages = 4;
    const auto outcome = solve(job);
    ASSERT_TRUE(outcome) << outcome.error().message;
    const std::vector<Pool> pools = usable_pools(job.cluster);
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
                  place(job.cluster, pools, std::vector<PlacedGroup>(stages, {0, width}), replicas,
                        layout);
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

TEST(Solve, ClaimsNothingOfWidthsThatItCannotPackTogether) {
  Job job = testing::small_job(6, 1, 8, 16);
  job.search.stage_widths = true;
  job.search.tp_widths = {1, 7};
  for (const CostModelKind model : {CostModelKind::kPhysical, CostModelKind::kDocument}) {
    job.search.model = model;
    const auto outcome = solve(job);
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_FALSE(outcome->certificate.optimal);
    EXPECT_FALSE(outcome->certificate.bounds_all);
    ASSERT_EQ(outcome->certificate.undone.size(), 1U);
    EXPECT_NE(outcome->summary.find("apart from"), std::string::npos) << outcome->summary;
  }
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

TEST(Solve, DoesNotDependOnTheOrderOfItsParts) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Job job = testing::uneven_job(seed, 9, 2, 4, 24);
    job.search.stage_widths = seed % 2 == 0;
    job.search.max_stages = 4;
    job.search.micro_batch_sizes = {1, 2};
    job.schedule = seed % 3 == 0 ? Schedule::kInterleaved : Schedule::k1f1b;
    job.search.model = seed % 5 == 0 ? CostModelKind::kDocument : CostModelKind::kPhysical;
    const auto inline_ = solve(job);
    SolveOptions backwards;
    backwards.parallel_for = [](std::size_t count, const std::function<void(std::size_t)>& part) {
      for (std::size_t k = count; k-- > 0;) {
        part(k);
      }
    };
    const auto other = solve(job, backwards);
    ASSERT_EQ(inline_.has_value(), other.has_value()) << "seed " << seed;
    if (inline_) {
      EXPECT_EQ(inline_->summary, other->summary) << "seed " << seed;
      EXPECT_EQ(inline_->plan.pp_splits, other->plan.pp_splits);
      EXPECT_EQ(inline_->plan.placement, other->plan.placement);
      EXPECT_EQ(inline_->certificate.rows_timed, other->certificate.rows_timed);
    }
  }
}

TEST(Solve, InterleavesWhenTheScheduleSaysSo) {
  Job job = testing::small_job(22, 4, 4, 64);
  job.search.tp_widths = {2};
  job.search.min_stages = job.search.max_stages = 4;
  const auto plain = solve(job);
  job.schedule = Schedule::kInterleaved;
  const auto interleaved = solve(job);
  job.search.interleave = {3};
  const auto three = solve(job);
  ASSERT_TRUE(plain && interleaved && three) << three.error().message;
  EXPECT_GT(interleaved->plan.interleave, 1U) << interleaved->summary;
  EXPECT_LT(interleaved->plan.predicted.step_time_s, plain->plan.predicted.step_time_s);
  EXPECT_EQ(three->plan.interleave, 3U);
  EXPECT_EQ(three->plan.pp_splits.size(), 12U);
  EXPECT_TRUE(check_plan(job, three->plan).has_value());
  EXPECT_LE(three->plan.predicted.lower_bound_s, three->plan.predicted.step_time_s);
}

TEST(Solve, ChoosesTheMicroBatchSize) {
  Job job = testing::small_job(12, 2, 4, 64);
  job.search.micro_batch_sizes = {1, 2, 4};
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  double best = std::numeric_limits<double>::infinity();
  for (const std::uint32_t size : {1U, 2U, 4U}) {
    Job one = with_micro_batch_size(job, size);
    one.search.micro_batch_sizes.clear();
    const auto alone = solve(one);
    ASSERT_TRUE(alone);
    best = std::min(best, alone->plan.predicted.step_time_s);
  }
  EXPECT_NEAR(outcome->plan.predicted.step_time_s, best, 1e-6 * best);
  const Job sized = with_micro_batch_size(job, outcome->plan.micro_batch_size);
  EXPECT_TRUE(check_plan(sized, outcome->plan).has_value());
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

TEST(Solve, MinimisesTheDocumentsObjectiveOfTheLargeJob) {
  Job job = testing::gpt3_175b_on_1024();
  job.search.model = CostModelKind::kDocument;
  // Stage time alone takes as many stages as allowed, whatever the bubble: 16 leave it small.
  job.search.max_stages = 16;
  job.search.weights = {0, 0, 1};
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_TRUE(check_plan(job, outcome->plan).has_value());
  EXPECT_TRUE(outcome->certificate.optimal);
  const Prediction& p = outcome->plan.predicted;
  EXPECT_GT(p.peak_fraction, 0.76) << outcome->summary;
  EXPECT_LT(*std::max_element(p.stage_memory_bytes.begin(), p.stage_memory_bytes.end()), 40e9);
  EXPECT_NEAR(outcome->certificate.objective,
              *std::max_element(p.stage_time_s.begin(), p.stage_time_s.end()), 1e-12);
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
  const std::vector<Pool> pools = usable_pools(job.cluster);
  const auto placement = place(job.cluster, pools, std::vector<PlacedGroup>(14, {0, 4}), 18,
                               Layout::kReplicasTogether);
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
