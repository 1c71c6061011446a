#include "daemon/core/rotating.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

TEST(Rotating, ByChanceIsTheMedianOfTheLargestOfNormalValues) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (const auto& [size, groups] : {std::pair{1U, 64U}, {2U, 32U}, {8U, 16U}, {5U, 100U}}) {
    const double limit = Rotating::by_chance(size, groups);
    int above = 0;
    constexpr int kDraws = 4000;
    for (int draw = 0; draw < kDraws; ++draw) {
      double largest = -10;
      for (std::uint32_t group = 0; group < groups; ++group) {
        std::vector<double> values(size);
        std::generate(values.begin(), values.end(), [&] { return normal(random); });
        std::sort(values.begin(), values.end());
        largest = std::max(largest, values[(size - 1) / 2]);
      }
      above += largest > limit ? 1 : 0;
    }
    // 1 - (1 - 1 / 2n)^n is about 0.39.
    EXPECT_NEAR(above / static_cast<double>(kDraws), 0.39, 0.04) << size << " x " << groups;
  }
}

TEST(Rotating, OneThatIsAlwaysTheFurthestIsNoRotation) {
  for (const bool rotates : {true, false}) {
    Rotating rotating;
    rotating.allow(0.25);
    const Sensitivity sensitivity = Sensitivity::of(0.01, 10, 0.03);
    for (std::uint32_t step = 1; step <= 200; ++step) {
      const double value = step <= 100 ? 0.02 : 0.3;
      rotating.observe(value, rotates ? step % 5 : 3, sensitivity, {step, 0});
    }
    EXPECT_TRUE(rotating.alarmed());
    EXPECT_EQ(rotating.holds(sensitivity), rotates);
  }
}

}  // namespace
}  // namespace tapas::daemon
