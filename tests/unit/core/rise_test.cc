#include "daemon/core/rise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

struct Best {
  double evidence = 0;
  std::uint32_t run = 0;
};

/// Every start tried; those before the last moment at which all sums were zero or less are void.
Best by_enumeration(const std::vector<double>& values, double doubt) {
  Best best;
  double sum = 0;
  for (std::uint32_t run = 1; run <= values.size(); ++run) {
    sum += values[values.size() - run];
    const double evidence = sum / std::sqrt(run + doubt * run * run);
    if (evidence > best.evidence + 1e-12) {
      best = {evidence, run};
    }
  }
  return best;
}

TEST(Rise, IsTheBestOfAllStarts) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const double doubt = seed % 2 == 0 ? 0 : 1.0 / static_cast<double>(seed);
    std::mt19937_64 random(seed);
    std::normal_distribution<double> noise(seed % 3 == 0 ? 0.2 : -0.3, 1.0);
    Rise rise;
    std::vector<double> values;
    for (std::uint64_t step = 1; step <= 150; ++step) {
      values.push_back(noise(random));
      rise.add(values.back(), -1e9, doubt, {step, 0});
      const Best best = by_enumeration(values, doubt);
      // Few starts are kept: once in 10,000 steps the best is not among them.
      ASSERT_NEAR(rise.evidence(), best.evidence, doubt > 0 ? 0.02 : 1e-9)
          << "seed " << seed << " step " << step;
      if (best.evidence > 0 && rise.evidence() > best.evidence - 1e-9) {
        ASSERT_EQ(rise.run(), best.run) << "seed " << seed << " step " << step;
        ASSERT_EQ(rise.since().step, step + 1 - best.run);
        ASSERT_NEAR(rise.mean() * best.run,
                    best.evidence * std::sqrt(best.run + doubt * best.run * best.run), 1e-8);
      }
    }
  }
}

TEST(Rise, ALongClimbStaysWithinItsMemoryAndNearTheBest) {
  Rise rise;
  std::vector<double> values;
  for (std::uint64_t step = 1; step <= 4000; ++step) {
    values.push_back(1e-6 * static_cast<double>(step));
    rise.add(values.back(), -1e9, 0, {step, 0});
    if (step % 100 == 0) {
      EXPECT_GT(rise.evidence(), 0.9 * by_enumeration(values, 0).evidence) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace tapas::daemon
