#include "solver/search/split.h"

#include "every_plan.h"
#include "jobs.h"
#include "solver/cost/cost_model.h"
#include "solver/search/found.h"
#include "solver/search/reach.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace tapas::solver {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LeanestSplit, EqualsAllCuts) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    testing::Draw draw(seed);
    const Job job = testing::uneven_job(seed, draw.between(4U, 9U), 2, 8, 64);
    const auto model = make_cost_model(job);
    const LayerTable table(job, *model, Sharding{0, 2, false});
    SplitProblem p;
    p.table = &table;
    p.rule = memory_rule(job, 0, 4);
    p.rule.recompute_ratio = 0.25;
    p.stages = draw.between(1U, 4U);
    p.microbatches = draw.between(1U, 12U);
    double best = kInfinity;
    testing::for_each_cut(table.layers(), p.stages, [&](const auto& cuts) {
      double most = 0;
      for (std::uint32_t s = 0; s < p.stages; ++s) {
        const LayerRange range{cuts[s], s + 1 < p.stages ? cuts[s + 1] : table.layers()};
        most =
            std::max(most, least_memory_bytes(table, p.rule, range,
                                              in_flight(p.schedule, p.stages, s, p.microbatches)));
      }
      best = std::min(best, most);
    });
    const auto split = leanest_split(p, kInfinity);
    ASSERT_TRUE(split) << "seed " << seed;
    EXPECT_NEAR(split->value, best, 1e-9 * best) << "seed " << seed;
    EXPECT_FALSE(leanest_split(p, split->value));
  }
}

/// Rows of one kind of a random job, in problems of their own.
template <typename Visit>
void for_each_problem(std::uint64_t seed, const Visit& visit) {
  const Job job = testing::random_small_job(seed);
  const Fleet fleet(job);
  for (const auto& [sharding, table] : fleet.sizes().front()->tables) {
    for (std::uint32_t stages = 1; stages <= std::min(3U, table->layers()); ++stages) {
      const std::uint32_t replicas =
          std::min(fleet.slots(sharding) / stages, job.total_microbatches());
      if (replicas > 0) {
        visit(fleet, Spec{0, false, sharding, replicas, stages, 1});
      }
    }
  }
}

/// The largest bound of the row's stages, by the least that is before each.
double largest_bound_s(RowCosts& costs, const Row& row) {
  double worst = 0;
  for (std::uint32_t s = 0; s < row.stages(); ++s) {
    const LayerRange range = row.range(s, costs.problem().layers());
    worst = std::max(worst, costs.bound_s(row.kinds[s], row.stages() - 1 - s, range,
                                          costs.least_before(range.first, s)));
  }
  return worst;
}

TEST(ReachAlike, HoldsAtTheLeastLargestBoundOfAllCuts) {
  int problems = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    for_each_problem(seed, [&](const Fleet& fleet, const Spec& spec) {
      Bench bench(fleet, spec);
      double best = kInfinity;
      testing::for_each_cut(bench.problem.layers(), spec.stages, [&](const auto& cuts) {
        const Row row{cuts, std::vector<std::uint32_t>(spec.stages, 0)};
        const double bound = largest_bound_s(bench.costs, row);
        best = std::min(best, bound);
        const double step = bench.times.best_step_s(row);
        EXPECT_GE(step * (1 + 1e-12), bench.times.least_step_s(row)) << "seed " << seed;
        if (step < kInfinity) {
          EXPECT_GE(step * (1 + 1e-12), bound) << "seed " << seed;
        }
      });
      if (best == kInfinity) {
        EXPECT_FALSE(reach_alike(bench.costs, 0, spec.stages, 1e300));
        return;
      }
      ++problems;
      const auto row = reach_alike(bench.costs, 0, spec.stages, best * (1 + 1e-12));
      ASSERT_TRUE(row) << "seed " << seed;
      EXPECT_LE(largest_bound_s(bench.costs, *row), best * (1 + 1e-11));
      EXPECT_FALSE(reach_alike(bench.costs, 0, spec.stages, best * (1 - 1e-9))) << "seed " << seed;
      // The search over rows that may mix kinds leaves the links before a stage out.
      const ReachMixed mixed(bench.costs, spec.stages, best * (1 + 1e-12));
      EXPECT_TRUE(mixed.row(spec.stages)) << "seed " << seed;
    });
  }
  EXPECT_GT(problems, 300);
}

TEST(SplitAlike, KeepsTheRecomputationLimitAndIsLeast) {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    for_each_problem(seed, [&](const Fleet& fleet, const Spec& spec) {
      Bench bench(fleet, spec);
      const auto value = [&](const Row& row) {
        double worst = 0;
        for (std::uint32_t s = 0; s < row.stages(); ++s) {
          const LayerRange range = row.range(s, bench.problem.layers());
          worst =
              std::max(worst, bench.costs.exact_bound_s(0, row.stages() - 1 - s, range,
                                                        bench.costs.least_before(range.first, s)));
        }
        return worst;
      };
      double best = kInfinity;
      testing::for_each_cut(bench.problem.layers(), spec.stages, [&](const auto& cuts) {
        best = std::min(best, value({cuts, std::vector<std::uint32_t>(spec.stages, 0)}));
      });
      const auto row = split_alike(bench.costs, 0, spec.stages, kInfinity);
      ASSERT_EQ(row.has_value(), best < kInfinity) << "seed " << seed;
      if (row) {
        EXPECT_DOUBLE_EQ(value(*row), best) << "seed " << seed;
      }
    });
  }
}

TEST(MixedBound, IsBelowEveryRow) {
  int rows = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Job job = testing::random_small_job(seed);
    job.search.stage_widths = true;
    const Fleet fleet(job);
    if (!fleet.mixes()) {
      continue;
    }
    testing::Draw draw(seed);
    Spec spec{0, true, {}, 1, std::min(3U, job.graph.layer_count()), 1};
    Bench bench(fleet, spec);
    const RowProblem& problem = bench.problem;
    std::uint32_t budget = 0;
    for (const std::uint32_t devices : problem.budget) {
      budget += devices;
    }
    for (int k = 0; k < 10; ++k) {
      Row row;
      for (std::uint32_t s = 0; s < spec.stages; ++s) {
        row.cuts.push_back(s);
        row.kinds.push_back(draw.between(0U, static_cast<std::uint32_t>(problem.kinds.size()) - 1));
      }
      const double step = bench.times.best_step_s(row);
      if (step < kInfinity) {
        ++rows;
        EXPECT_LE(bench.costs.mixed_bound_s(spec.stages, budget), step) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(rows, 50);
}

}  // namespace
}  // namespace tapas::solver
