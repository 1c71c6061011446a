// Holds the micro-replan to its promises on small instances, by evaluations so that it always
// answers alike. tapas-replan-quality measures the same by time.
#include "solver/replan/micro_replan.h"
#include "tests/replan/exact.h"
#include "tests/replan/instances.h"
#include "tests/replan/value.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tapas::solver::testing {
namespace {

Proposal replan(const Instance& instance, std::uint64_t evaluations) {
  ReplanLimits limits;
  limits.evaluations = evaluations;
  return micro_replan(instance.job, instance.request, limits).value();
}

class MicroReplanQuality : public ::testing::TestWithParam<std::string> {};

TEST_P(MicroReplanQuality, IsNeverWorseThanDoingNothingAndBreaksNoRule) {
  constexpr std::uint64_t kSeeds = 15;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Instance instance = small_instance(GetParam(), seed);
    SCOPED_TRACE(instance.name);
    for (const std::uint64_t evaluations : {1U, 50U, 2000U}) {
      const Proposal proposal = replan(instance, evaluations);
      Judge judge(instance.job, instance.request);
      const Value before = judge.value(instance.request.current);
      const Value after = judge.value(proposal.plan);
      EXPECT_FALSE(better(before, after));
      EXPECT_NEAR(proposal.step_before_s / before.step_s, 1, 1e-9);
      EXPECT_NEAR(proposal.step_after_s / after.step_s, 1, 1e-9);
      EXPECT_NEAR(proposal.switch_s, after.switch_s, 1e-9 * (1 + after.switch_s));
      EXPECT_LE(proposal.lower_bound_s, proposal.step_after_s * (1 + 1e-9));
      EXPECT_EQ(proposal.improves, better(after, before));
      for (const std::string& breach : breaches(instance.job, instance.request, proposal.plan)) {
        ADD_FAILURE() << breach;
      }
    }
  }
}

TEST_P(MicroReplanQuality, AnswersAlikeForASeed) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Instance instance = small_instance(GetParam(), seed);
    SCOPED_TRACE(instance.name);
    const Proposal a = replan(instance, 1000);
    const Proposal b = replan(instance, 1000);
    EXPECT_TRUE(same_plan(a.plan, b.plan));
    EXPECT_EQ(a.plans_evaluated, b.plans_evaluated);
    EXPECT_EQ(a.reason, b.reason);
  }
}

std::string named(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const SmallFamily& family : small_families()) {
    all.push_back(family.name);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, MicroReplanQuality, ::testing::ValuesIn(names()), named);

TEST(MicroReplanQualityOverall, IsOptimalMostlyAndCloseElsewhere) {
  constexpr std::uint64_t kSeeds = 6;
  constexpr std::uint64_t kEvaluations = 8'000;
  constexpr std::uint64_t kEffort = 300'000;  // the hardest proofs are left to the program
  double proven = 0;
  double optimal = 0;
  double close = 0;
  for (const SmallFamily& family : small_families()) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Instance instance = small_instance(family.name, seed);
      SCOPED_TRACE(instance.name);
      const Proposal proposal = replan(instance, kEvaluations);
      const Exact exact = exact_optimum(instance.job, instance.request, proposal.plan, kEffort);
      if (!exact.proven) {
        continue;
      }
      Judge judge(instance.job, instance.request);
      const double gap = gap_to(judge.value(proposal.plan), exact.value);
      EXPECT_GE(gap, -1e-9);
      ++proven;
      optimal += gap <= 1e-9 ? 1 : 0;
      close += gap <= 0.01 ? 1 : 0;
    }
  }
  // What docs/micro-replan.md states as reached; its targets are higher.
  EXPECT_GT(proven, 50);
  EXPECT_GE(optimal, 0.9 * proven) << optimal << " of " << proven;
  EXPECT_GE(close, 0.97 * proven) << close << " of " << proven;
}

double useful_step_s(const Instance& instance, std::uint64_t evaluations) {
  Judge judge(instance.job, instance.request);
  return judge.value(replan(instance, evaluations).plan).per_useful_step_s;
}

TEST(MicroReplanAt1024Devices, IsNearlyAsGoodAsWithTenTimesTheEvaluations) {
  double sum = 0;
  double count = 0;
  for (std::uint32_t event = 1; event <= kEvents; ++event) {
    for (const Runtime runtime : {Runtime::kFree, Runtime::kFrozen, Runtime::kTied}) {
      const Instance instance = large_instance(event, 1, runtime);
      SCOPED_TRACE(instance.name);
      const double gap = useful_step_s(instance, 1500) / useful_step_s(instance, 15000) - 1;
      EXPECT_GE(gap, -1e-9);
      EXPECT_LE(gap, 0.03);
      sum += gap;
      ++count;
    }
  }
  EXPECT_LE(sum / count, 0.006) << sum / count;
}

TEST(MicroReplanAt1024Devices, PutsAFarSpareWhereAllReplicasHaveFewLayers) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    // Where microbatches may move no spare is needed; without them it costs the same if it stands
    // well, and 1.2 % more in the place of the slow node.
    EXPECT_LE(useful_step_s(large_instance(2, seed, Runtime::kFrozen), 1500),
              useful_step_s(large_instance(2, seed, Runtime::kFree), 1500) * 1.008);
  }
}

TEST(MicroReplanAt1024Devices, PutsAllThatIsSlowInOneStage) {
  for (const Runtime runtime : {Runtime::kFree, Runtime::kFrozen, Runtime::kTied}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const Instance instance = large_instance(6, seed, runtime);
      SCOPED_TRACE(instance.name);
      EXPECT_LE(useful_step_s(instance, 1500), useful_step_s(instance, 10000) * 1.03);
    }
  }
}

TEST(MicroReplanAt1024Devices, LetsASlowStageHaveFewerLayersThanItsSpeedAllows) {
  // A node 2.45 times as slow with a third of the layers costs 1.4 % more than with one of six.
  EXPECT_LE(useful_step_s(large_instance(3, 4, Runtime::kFrozen), 1500),
            useful_step_s(large_instance(3, 4, Runtime::kFree), 10000) * 1.015);
}

TEST(MicroReplanAt1024Devices, LeavesNodesAtHomeThatNeedNotMove) {
  for (const std::uint32_t event : {4U, 5U, 8U}) {
    const Instance instance = large_instance(event, 2, Runtime::kFrozen);
    SCOPED_TRACE(instance.name);
    const Plan plan = replan(instance, 1500).plan;
    const Plan& old = instance.request.current;
    Judge judge(instance.job, instance.request);
    const Value now = judge.value(plan);
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      for (std::uint32_t s = 0; s < plan.stages(); ++s) {
        const Position& home = old.placement[r][s];
        for (std::uint32_t q = 0; q < plan.replicas() && plan.placement[r][s] != home; ++q) {
          for (std::uint32_t t = 0; t < plan.stages(); ++t) {
            if (plan.placement[q][t] == home) {
              Plan back = plan;
              std::swap(back.placement[r][s], back.placement[q][t]);
              EXPECT_TRUE(!judge.allows(back) || better(now, judge.value(back)))
                  << "replica " << r << " stage " << s;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tapas::solver::testing
