#include "daemon/core/flaps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tapas::daemon {
namespace {

/// Steps until the alarm when each is far off with this chance; `most` + 1 when none comes.
int steps_to_alarm(Flaps& flaps, double chance, int most, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  for (int step = 1; step <= most; ++step) {
    const bool far = uniform(random) < chance;
    flaps.add(far ? std::log(1.6) : 0, far, {static_cast<std::uint64_t>(step), 0});
    if (flaps.alarmed()) {
      return step;
    }
  }
  return most + 1;
}

TEST(Flaps, TwoOrThreeOfTenStepsAreFoundWithinSomeTens) {
  for (const double chance : {0.2, 0.3}) {
    int sum = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      Flaps flaps;
      sum += steps_to_alarm(flaps, chance, 1000, seed);
      EXPECT_NEAR(flaps.share(), chance, 0.45);
      EXPECT_NEAR(flaps.height(), std::log(1.6), 1e-9);
    }
    EXPECT_LE(sum / 200, 60) << chance;
  }
}

TEST(Flaps, PausesAndLoneSpikesNeverAddUp) {
  for (const double chance : {0.001, 0.004}) {
    Flaps flaps;
    EXPECT_EQ(steps_to_alarm(flaps, chance, 5'000'000, 7), 5'000'001) << chance;
  }
}

TEST(Flaps, WhoIsAlwaysFarOffDoesNotFlap) {
  Flaps flaps;
  EXPECT_EQ(steps_to_alarm(flaps, 1.0, 100, 1), 101);
}

TEST(Flaps, ABlamedOneIsCalmOnlyAfterLongQuiet) {
  Flaps flaps;
  ASSERT_LE(steps_to_alarm(flaps, 0.3, 1000, 3), 1000);
  flaps.blame();
  EXPECT_FALSE(flaps.alarmed());
  for (std::uint64_t step = 0; step < 200; ++step) {
    flaps.add(0.47, step % 10 == 0, {step, 0});
    ASSERT_FALSE(flaps.calm());
  }
  for (std::uint64_t step = 0; step < 40; ++step) {
    flaps.add(0, false, {step, 0});
  }
  EXPECT_TRUE(flaps.calm());
}

}  // namespace
}  // namespace tapas::daemon
