#include "tests/replan/exact.h"

#include "solver/check/check_plan.h"
#include "tests/replan/annealing.h"
#include "tests/replan/instances.h"
#include "tests/replan/value.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tapas::solver::testing {
namespace {

TEST(ExactOptimum, EqualsPlainEnumeration) {
  int improved = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Instance instance = tiny_instance(seed);
    SCOPED_TRACE(instance.name);
    const Exact all = enumerate(instance.job, instance.request);
    const Exact exact = exact_optimum(instance.job, instance.request, instance.request.current);
    EXPECT_EQ(exact.value.drained_in_use, all.value.drained_in_use);
    EXPECT_NEAR(exact.value.per_useful_step_s / all.value.per_useful_step_s, 1, 1e-9);
    EXPECT_TRUE(breaches(instance.job, instance.request, exact.plan).empty());
    Judge judge(instance.job, instance.request);
    improved += better(exact.value, judge.value(instance.request.current)) ? 1 : 0;
  }
  EXPECT_GT(improved, 50);
}

TEST(ExactOptimum, IsTheSameWhateverIsKnown) {
  for (const std::string family : {"f2", "f2b", "f3a"}) {
    const Instance instance = small_instance(family, 3);
    SCOPED_TRACE(instance.name);
    double share = 0;
    const Plan known =
        anneal(instance.job, instance.request, 3e-2, 1, [&] { return share += 1e-3; });
    const Exact a = exact_optimum(instance.job, instance.request, instance.request.current);
    const Exact b = exact_optimum(instance.job, instance.request, known);
    EXPECT_NEAR(a.value.per_useful_step_s / b.value.per_useful_step_s, 1, 1e-9);
    EXPECT_GE(a.looked_at, b.looked_at);
  }
}

TEST(SmallInstance, HasAValidPlanInEveryFamily) {
  for (const SmallFamily& family : small_families()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const Instance instance = small_instance(family.name, seed);
      SCOPED_TRACE(instance.name);
      const auto valid = check_plan(instance.job, instance.request.current);
      EXPECT_TRUE(valid) << valid.error().message;
      EXPECT_TRUE(validate(instance.job)) << validate(instance.job).error().message;
    }
  }
}

TEST(LargeInstance, HasAValidPlanForEveryEvent) {
  for (std::uint32_t event = 1; event <= kEvents; ++event) {
    const Instance instance = large_instance(event, 1, Runtime::kFree, 2);
    SCOPED_TRACE(instance.name);
    const auto valid = check_plan(instance.job, instance.request.current);
    EXPECT_TRUE(valid) << valid.error().message;
    EXPECT_TRUE(validate(instance.job)) << validate(instance.job).error().message;
    Judge judge(instance.job, instance.request);
    const Plan now = split_anew(instance.job, instance.request);
    EXPECT_FALSE(better(judge.value(instance.request.current), judge.value(now)));
  }
  const Instance malleus = malleus_shape(1);
  const auto valid = check_plan(malleus.job, malleus.request.current);
  EXPECT_TRUE(valid) << valid.error().message;
}

}  // namespace
}  // namespace tapas::solver::testing
