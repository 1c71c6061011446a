#include "solver/search/split.h"

#include "jobs.h"
#include "solver/cost/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

namespace tapas::solver {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  Job job;
  std::unique_ptr<const CostModel> model;
  std::unique_ptr<LayerTable> table;
  SplitProblem problem;
};

Case random_case(std::uint64_t seed) {
  testing::Draw draw(seed);
  Case c{testing::uneven_job(seed, draw.between(4U, 10U), 2, 8, 64), nullptr, nullptr, {}};
  c.model = make_cost_model(c.job);
  c.table = std::make_unique<LayerTable>(c.job, *c.model, Sharding{0, 2, false});
  SplitProblem& p = c.problem;
  p.table = c.table.get();
  p.schedule = seed % 4 == 0 ? Schedule::kGpipe : Schedule::k1f1b;
  p.stages = draw.between(1U, std::min(5U, c.table->layers()));
  p.microbatches = draw.between(1U, 12U);
  p.groups_per_node = draw.between(1U, 4U);
  p.near_s = draw.between(0.0, 0.002);
  p.far_s = p.near_s + draw.between(0.0, 0.01);
  p.tail = {draw.between(0.0, 0.01), draw.between(0.0, 1e-10)};
  p.rule = memory_rule(c.job, 0, 4);
  p.rule.recompute_ratio = 0.25;
  const double whole = stage_memory_bytes(*c.table, p.rule, {0, c.table->layers()},
                                          in_flight(p.schedule, p.stages, 0, p.microbatches),
                                          std::vector<bool>(c.table->layers(), false));
  p.rule.capacity_bytes = whole * draw.between(0.2, 1.2);
  return c;
}

/// Delays of the best placement there can be: a node takes groups_per_node stages in a row.
std::vector<double> best_delays(const SplitProblem& p) {
  std::vector<double> delays;
  for (std::uint32_t s = 0; s + 1 < p.stages; ++s) {
    delays.push_back((s + 1) % p.groups_per_node == 0 ? p.far_s : p.near_s);
  }
  return delays;
}

TEST(BottleneckSplit, IsNeverAboveTheExactTimeOfAnyCut) {
  int feasible = 0;
  double worst_slack = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Case c = random_case(seed);
    const auto bound = bottleneck_split(c.problem, kInfinity);
    double best = kInfinity;
    testing::for_each_cut(c.table->layers(), c.problem.stages, [&](const auto& cuts) {
      best = std::min(best, split_time_s(c.problem, cuts, best_delays(c.problem)));
    });
    ASSERT_EQ(bound.has_value(), best < kInfinity) << "seed " << seed;
    if (bound) {
      ++feasible;
      EXPECT_LE(bound->value, best * (1 + 1e-12)) << "seed " << seed;
      worst_slack = std::max(worst_slack, best / bound->value - 1);
      EXPECT_LT(split_time_s(c.problem, bound->cuts, best_delays(c.problem)), kInfinity);
    }
  }
  EXPECT_GT(feasible, 60);
  EXPECT_LT(worst_slack, 0.35) << "the bound says something";
}

TEST(BottleneckSplit, IsExactForEqualStages) {
  const Job job = testing::small_job(14, 2, 8, 64);
  const auto model = make_cost_model(job);
  const LayerTable table(job, *model, {0, 1, false});
  SplitProblem p;
  p.table = &table;
  p.rule = memory_rule(job, 0, 4);
  p.microbatches = 16;
  p.stages = 4;
  const auto bound = bottleneck_split(p, kInfinity);
  ASSERT_TRUE(bound);
  Split split = *bound;
  polish(p, std::vector<double>(3, 0), split);
  EXPECT_NEAR(split.value, bound->value, 0.01 * split.value);
}

TEST(BottleneckSplit, FindsNothingBelowTheCutoff) {
  const Case c = random_case(9);
  const auto bound = bottleneck_split(c.problem, kInfinity);
  ASSERT_TRUE(bound);
  EXPECT_FALSE(bottleneck_split(c.problem, bound->value));
  const auto again = bottleneck_split(c.problem, bound->value * (1 + 1e-9));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cuts, bound->cuts);
}

TEST(BalancedSplit, EqualsAllCuts) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Case c = random_case(seed);
    double best = kInfinity;
    testing::for_each_cut(c.table->layers(), c.problem.stages, [&](const auto& cuts) {
      double longest = 0;
      for (std::uint32_t s = 0; s < c.problem.stages; ++s) {
        const LayerRange range{cuts[s], s + 1 < c.problem.stages ? cuts[s + 1] : c.table->layers()};
        const auto stage = fit(c.problem, s, range);
        longest = std::max(longest, stage ? stage->total_s() : kInfinity);
      }
      best = std::min(best, longest);
    });
    const auto split = balanced_split(c.problem);
    ASSERT_EQ(split.has_value(), best < kInfinity) << "seed " << seed;
    if (split) {
      EXPECT_NEAR(split->value, best, 1e-9 * best) << "seed " << seed;
    }
  }
}

TEST(Polish, ComesCloseToTheBestOfAllCuts) {
  int cases = 0;
  int optimal = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Case c = random_case(seed);
    auto split = bottleneck_split(c.problem, kInfinity);
    if (!split) {
      continue;
    }
    const std::vector<double> delays = best_delays(c.problem);
    polish(c.problem, delays, *split);
    double best = kInfinity;
    testing::for_each_cut(c.table->layers(), c.problem.stages, [&](const auto& cuts) {
      best = std::min(best, split_time_s(c.problem, cuts, delays));
    });
    ++cases;
    optimal += split->value <= best * (1 + 1e-9) ? 1 : 0;
    EXPECT_LE(split->value, best * 1.15) << "seed " << seed;
  }
  EXPECT_GE(optimal * 100, cases * 90) << optimal << " of " << cases;
}

}  // namespace
}  // namespace tapas::solver
