#include "solver/replan/row_repair.h"

#include "jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace tapas::solver {
namespace {

double slowest_row_s(PlanEvaluator& evaluator, const Plan& plan, const ClusterState& state) {
  double slowest = 0;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    slowest = std::max(
        slowest, evaluator.class_time_s(evaluator.class_of(evaluator.pipeline_of(plan, r, state)),
                                        plan.microbatches[r]));
  }
  return slowest;
}

ClusterState slow_position(const Job& job, const Position& position, double factor) {
  ClusterState state;
  state.device_slowdown.assign(job.cluster.device_count(), 1);
  for (const std::uint16_t d : position.devices) {
    state.device_slowdown[job.cluster.rank_of(position.node, d).value()] = factor;
  }
  return state;
}

TEST(CutPairs, FindsTheBestOfAllPairCutsOfOneSlowStage) {
  testing::Draw draw(5);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Job job = testing::uneven_job(seed, 12, 8, 4, 24);
    Plan plan = testing::simple_plan(job, {0, 3, 6, 9}, 2, 4);
    const std::uint32_t slow = draw.between(0U, 3U);
    const ClusterState state = slow_position(job, plan.placement[1][slow], draw.between(1.2, 3.0));
    PlanEvaluator evaluator(job);
    // One pair at a time is what a single round decides; every such cut by enumeration.
    double best = slowest_row_s(evaluator, plan, state);
    const double before = best;
    for (const std::uint32_t left : {slow, slow - 1}) {
      if (left >= 3) {
        continue;
      }
      const std::uint32_t end = left + 2 < 4 ? plan.pp_splits[left + 2] : 12;
      for (std::uint32_t cut = plan.pp_splits[left] + 1; cut < end; ++cut) {
        Plan other = plan;
        other.replica_splits = {{}, plan.pp_splits};
        other.replica_splits[1][left + 1] = cut;
        best = std::min(best, slowest_row_s(evaluator, other, state));
      }
    }
    std::uint64_t evaluated = 0;
    RowRepair(evaluator, state, evaluated).cut_pairs(plan, false);
    const double after = slowest_row_s(evaluator, plan, state);
    EXPECT_LE(after, best * (1 + 1e-9)) << "seed " << seed;
    EXPECT_LE(after, before);
    EXPECT_GT(evaluated, 0U);
  }
}

TEST(CutPairs, KeepsMemoryAndRecomputesWhereAllowed) {
  Job job = testing::uneven_job(3, 12, 8, 4, 24);
  Plan plan = testing::simple_plan(job, {0, 3, 6, 9}, 2, 4);
  PlanEvaluator roomy(job);
  double most = 0;
  for (std::uint32_t s = 0; s < 4; ++s) {
    most = std::max(most, roomy.memory_bytes(plan, 0, s));
  }
  job.limits.device_memory_bytes = most * 1.05 / (1 - job.limits.memory_reserve_ratio);
  job.limits.recompute_ratio = 0.3;
  const ClusterState state = slow_position(job, plan.placement[1][1], 2.5);
  PlanEvaluator evaluator(job);
  std::uint64_t evaluated = 0;
  RowRepair repair(evaluator, state, evaluated);
  Plan kept = plan;
  repair.cut_pairs(kept, false);
  Plan recomputing = plan;
  repair.cut_pairs(recomputing, true);
  EXPECT_EQ(kept.checkpoint, plan.checkpoint);
  for (const Plan* p : {&kept, &recomputing}) {
    for (std::uint32_t s = 0; s < 4; ++s) {
      EXPECT_LE(evaluator.memory_bytes(*p, 1, s), evaluator.rule_of(*p, 1, s).capacity_bytes);
    }
  }
  EXPECT_LE(
      evaluator.class_time_s(evaluator.class_of(evaluator.pipeline_of(recomputing, 1, state)), 12),
      evaluator.class_time_s(evaluator.class_of(evaluator.pipeline_of(kept, 1, state)), 12));
}

TEST(CutPairs, CutsAllReplicasAlikeWhenTheRuntimeNeedsIt) {
  Job job = testing::uneven_job(4, 12, 8, 4, 24);
  job.capabilities.replica_splits = false;
  Plan plan = testing::simple_plan(job, {0, 3, 6, 9}, 2, 4);
  const ClusterState state = slow_position(job, plan.placement[0][2], 2.0);
  PlanEvaluator evaluator(job);
  const double before = slowest_row_s(evaluator, plan, state);
  std::uint64_t evaluated = 0;
  RowRepair(evaluator, state, evaluated).cut_pairs(plan, false);
  EXPECT_TRUE(plan.replica_splits.empty());
  EXPECT_LT(slowest_row_s(evaluator, plan, state), before);
}

TEST(BalanceMicrobatches, EqualsAllDistributions) {
  testing::Draw draw(8);
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const std::uint32_t total = draw.between(8U, 15U);
    const Job job = testing::uneven_job(seed, 6, 6, 4, total);
    Plan plan = testing::simple_plan(job, {0, 3}, 3, 4);
    ClusterState state;
    for (std::uint32_t rank = 0; rank < 24; ++rank) {
      state.device_slowdown.push_back(rank % 4 == 0 ? draw.between(1.0, 2.5) : 1);
    }
    PlanEvaluator evaluator(job);
    double best = std::numeric_limits<double>::infinity();
    for (std::uint32_t a = 1; a < total - 1; ++a) {
      for (std::uint32_t b = 1; a + b < total; ++b) {
        Plan other = plan;
        other.microbatches = {a, b, total - a - b};
        best = std::min(best, slowest_row_s(evaluator, other, state));
      }
    }
    std::uint64_t evaluated = 0;
    RowRepair(evaluator, state, evaluated).balance_microbatches(plan);
    EXPECT_EQ(plan.microbatches[0] + plan.microbatches[1] + plan.microbatches[2], total);
    EXPECT_NEAR(slowest_row_s(evaluator, plan, state), best, 1e-9 * best) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tapas::solver
