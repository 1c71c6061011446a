#include "solver/cost/stage_fit.h"

#include "jobs.h"
#include "solver/cost/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace tapas::solver {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// Least extra seconds over all subsets of recomputed layers.
double brute_force(const LayerTable& table, const MemoryRule& rule, LayerRange range,
                   std::uint32_t held, StagePace pace) {
  const std::uint32_t n = range.last - range.first;
  double best = kNone;
  for (std::uint32_t mask = 0; mask < 1U << n; ++mask) {
    std::vector<bool> flags(table.layers(), false);
    double extra = 0;
    double again = 0;
    for (std::uint32_t k = 0; k < n; ++k) {
      if ((mask >> k & 1U) != 0) {
        const LayerCost& cost = table[range.first + k];
        flags[range.first + k] = true;
        extra += cost.times.forward_s * pace.compute + cost.times.forward_comm_s * pace.collectives;
        again += cost.forward_flops;
      }
    }
    if (stage_memory_bytes(table, rule, range, held, flags) <= rule.capacity_bytes &&
        again <= rule.recompute_ratio * table.sum(range).flops) {
      best = std::min(best, extra);
    }
  }
  return best;
}

void expect_equal(const LayerTable& table, const MemoryRule& rule, LayerRange range,
                  std::uint32_t held, StagePace pace = {}) {
  const double expected = brute_force(table, rule, range, held, pace);
  const auto fit = fit_stage(table, rule, range, held, pace);
  ASSERT_EQ(fit.has_value(), expected < kNone);
  if (fit) {
    const LayerCost sum = table.sum(range);
    EXPECT_EQ(fit->forward_s, sum.times.forward_s) << "healthy times";
    const double extra = (fit->backward_s - sum.times.backward_s) * pace.compute +
                         (fit->backward_comm_s - sum.times.backward_comm_s) * pace.collectives;
    EXPECT_NEAR(extra, expected, 1e-12 + 1e-9 * fit->total_s());
    EXPECT_EQ(fit->saved_s, 0);
    std::vector<bool> flags(table.layers(), false);
    mark_recomputed(table, range, *fit, flags);
    EXPECT_LE(stage_memory_bytes(table, rule, range, held, flags),
              rule.capacity_bytes * (1 + 1e-12));
  }
}

TEST(StageFit, EqualsAllSubsetsOnUnevenLayers) {
  testing::Draw draw(3);
  int needed = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Job job = testing::uneven_job(seed, 9, 1, 8, 8);
    const auto model = make_cost_model(job);
    const LayerTable table(job, *model, {0, static_cast<std::uint16_t>(seed % 2 + 1), false});
    const std::uint32_t first = draw.between(0U, 3U);
    const LayerRange range{first, draw.between(first + 1, 9U)};
    const std::uint32_t held = draw.between(1U, 6U);
    MemoryRule rule = memory_rule(job, 0, 4);
    const double whole = stage_memory_bytes(table, rule, range, held, std::vector<bool>(9, false));
    rule.capacity_bytes = whole * draw.between(0.4, 1.05);
    rule.recompute_ratio = draw.between(0.05, 0.34);
    needed += whole > rule.capacity_bytes ? 1 : 0;
    expect_equal(table, rule, range, held);
  }
  EXPECT_GT(needed, 40) << "the cases must need recomputation";
}

TEST(StageFit, EqualsAllSubsetsAtTheStagesOwnPace) {
  testing::Draw draw(13);
  int other_choice = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Job job = testing::uneven_job(seed, 9, 1, 8, 8);
    for (OpNode& op : job.graph.nodes) {  // collectives that weigh as much as compute
      op.out_bytes *= draw.between(1.0, 40.0);
    }
    const auto model = make_cost_model(job);
    const LayerTable table(job, *model, {0, static_cast<std::uint16_t>(seed % 2 * 2 + 2), false});
    const LayerRange range{0, draw.between(4U, 9U)};
    const std::uint32_t held = draw.between(1U, 6U);
    MemoryRule rule = memory_rule(job, 0, 4);
    rule.capacity_bytes = draw.between(0.6, 0.95) *
                          stage_memory_bytes(table, rule, range, held, std::vector<bool>(9, false));
    rule.recompute_ratio = draw.between(0.1, 0.34);
    const StagePace pace{draw.between(0.9, 3.0), draw.between(0.9, 10.0)};
    expect_equal(table, rule, range, held, pace);
    const auto healthy = fit_stage(table, rule, range, held);
    const auto slow = fit_stage(table, rule, range, held, pace);
    other_choice += healthy && healthy->backward_s != slow->backward_s ? 1 : 0;
  }
  EXPECT_GT(other_choice, 3) << "the pace must matter";
}

TEST(StageFit, EqualsAllSubsetsOnADecoder) {
  const Job job = testing::small_job(10, 1, 8, 32);
  const auto model = make_cost_model(job);
  const LayerTable table(job, *model, {0, 2, true});
  EXPECT_LE(table.types(), 3U) << "blocks are alike";
  for (const double share : {0.5, 0.7, 0.8, 0.9, 1.0}) {
    MemoryRule rule = memory_rule(job, 0, 2);
    rule.recompute_ratio = 0.34;
    const LayerRange range{0, 12};
    rule.capacity_bytes =
        share * stage_memory_bytes(table, rule, range, 4, std::vector<bool>(12, false));
    expect_equal(table, rule, range, 4);
  }
}

}  // namespace
}  // namespace tapas::solver
