#include "daemon/core/level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

constexpr double kNoOffsetLimit = 10.0;

/// A level that learnt a quiet baseline of zero.
class Series {
 public:
  explicit Series(double sigma, std::uint64_t seed = 1, double baseline = 0)
      : sigma_(sigma), random_(seed), baseline_(baseline) {
    for (int i = 0; i < 8; ++i) {
      add(0);
    }
  }
  void add(double deviation) {
    std::normal_distribution<double> noise(0, sigma_);
    level.observe(baseline_ + deviation + noise(random_), sensitivity(), {++step, 0});
  }
  [[nodiscard]] Sensitivity sensitivity() const { return Sensitivity::of(sigma_, 3, 0.025); }
  /// Steps of `deviation` until the alarm; `most` when there is none.
  int steps_to_alarm(double deviation, int most) {
    for (int i = 1; i <= most; ++i) {
      add(deviation);
      if (level.alarmed()) {
        return i;
      }
    }
    return most + 1;
  }

  Level level{8, kNoOffsetLimit};
  std::uint64_t step = 0;

 private:
  double sigma_;
  std::mt19937_64 random_;
  double baseline_;
};

TEST(Level, TwoSpikesInARowNeverAlarm) {
  Series series(0.01);
  for (int i = 0; i < 5000; ++i) {
    const bool spike = i % 20 < 2;
    series.add(spike ? 0.40 : 0);
    ASSERT_FALSE(series.level.alarmed()) << "at step " << i;
  }
}

TEST(Level, TwentyPercentAlarmsInThreeSteps) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Series series(0.01, seed);
    EXPECT_LE(series.steps_to_alarm(std::log(1.2), 10), 3) << "seed " << seed;
    EXPECT_TRUE(series.level.holds(series.sensitivity()) || series.level.run() < 5);
  }
}

TEST(Level, SmallSpikesNeedOneMoreInARowThanLargeOnes) {
  for (const double height : {0.12, 0.20}) {
    Level level(8, kNoOffsetLimit);
    Sensitivity sensitivity = Sensitivity::of(0.01, 3, 0.005);
    sensitivity.small_steps = 4;
    std::uint64_t step = 0;
    for (int i = 0; i < 40; ++i) {
      level.observe(0, sensitivity, {++step, 0});
    }
    std::uint32_t needed = 0;
    while (!level.alarmed()) {
      ASSERT_LT(++needed, 10U);
      level.observe(height, sensitivity, {++step, 0});
    }
    EXPECT_EQ(needed, height > 0.155 ? 3U : 4U);
  }
}

TEST(Level, LessDoubtMakesNoAlarmOfTwoSpikes) {
  Level level(8, kNoOffsetLimit, 0.03);
  Sensitivity sensitivity = Sensitivity::of(0.01, 3, 0);
  std::uint64_t step = 0;
  for (int i = 0; i < 40; ++i) {
    level.observe(0, sensitivity, {++step, 0});
  }
  for (const double wander : {0.02, 0.0045, 0.0045}) {
    ASSERT_FALSE(level.alarmed());
    sensitivity.wander = wander;
    level.observe(0.4, sensitivity, {++step, 0});
  }
  EXPECT_TRUE(level.alarmed());
}

int median(std::vector<int> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

TEST(Level, ASixPercentPlateauIsFound) {
  std::vector<int> quiet;
  std::vector<int> noisy;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Series calm(0.01, seed);
    EXPECT_EQ(calm.steps_to_alarm(0, 40), 41);
    quiet.push_back(calm.steps_to_alarm(std::log(1.06), 200));
    EXPECT_LE(quiet.back(), 60) << "seed " << seed;
    Series series(0.04, seed);
    EXPECT_EQ(series.steps_to_alarm(0, 400), 401);
    noisy.push_back(series.steps_to_alarm(std::log(1.06), 500));
    EXPECT_LE(noisy.back(), 300) << "seed " << seed;
  }
  EXPECT_LE(median(quiet), 10);
  EXPECT_LE(median(noisy), 100);
}

TEST(Level, ATenPercentPlateauIsFoundInNoiseThatIsLarger) {
  std::vector<int> steps;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Series series(0.115, seed);
    EXPECT_EQ(series.steps_to_alarm(0, 1000), 1001) << "seed " << seed;
    steps.push_back(series.steps_to_alarm(std::log(1.10), 1000));
  }
  EXPECT_LE(median(steps), 200);
}

TEST(Level, NoiseAloneNeverAlarms) {
  for (const double sigma : {0.002, 0.01, 0.05, 0.15}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Series series(sigma, seed);
      for (int i = 0; i < 20'000; ++i) {
        series.add(0);
        ASSERT_FALSE(series.level.alarmed()) << "sigma " << sigma << " seed " << seed;
      }
    }
  }
}

TEST(Level, NoisyRanksThatGetSlowAreFound) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Series series(0.115, seed);
    EXPECT_EQ(series.steps_to_alarm(0, 1000), 1001);
    EXPECT_LE(series.steps_to_alarm(std::log(1.25), 300), 100) << "seed " << seed;
  }
}

TEST(Level, TheBaselineDoesNotFollowADrift) {
  Series series(0.005);
  for (int i = 0; i < 100; ++i) {
    series.add(0);
  }
  int alarm = 0;
  for (int i = 1; i <= 1000 && alarm == 0; ++i) {
    series.add(std::log(1 + 0.0002 * i));
    alarm = series.level.alarmed() ? i : 0;
  }
  EXPECT_GT(alarm, 0);
  EXPECT_LT(alarm * 0.0002, 0.12);
}

TEST(Level, ASeriesThatGotFasterLearnsAgain) {
  Series series(0.01);
  for (int i = 0; i < 40; ++i) {
    series.add(-0.2);
  }
  EXPECT_FALSE(series.level.learning());
  EXPECT_NEAR(series.level.baseline(), -0.2, 0.01);
  EXPECT_LE(series.steps_to_alarm(-0.2 + std::log(1.2), 10), 3);
}

TEST(Level, ABlamedSeriesRecoversAndSpikesOfHealthDoNotCount) {
  Series series(0.01);
  ASSERT_LE(series.steps_to_alarm(0.4, 10), 3);
  series.add(0.4);
  series.add(0.4);
  series.level.blame();
  EXPECT_NEAR(series.level.level(), 0.4, 0.02);
  for (int i = 0; i < 100; ++i) {
    series.add(i % 10 < 2 ? 0.0 : 0.4);
    ASSERT_FALSE(series.level.recovered());
  }
  int steps = 0;
  while (!series.level.recovered() && steps < 20) {
    series.add(0);
    ++steps;
  }
  EXPECT_LE(steps, 4);
}

TEST(Level, ABlamedSeriesTellsWhenItsLevelMoves) {
  Series series(0.01);
  for (int i = 0; i < 5; ++i) {
    series.add(0.3);
  }
  series.level.blame();
  for (int i = 0; i < 20; ++i) {
    series.add(0.3 + (i % 2 == 0 ? 0.05 : -0.05));
    ASSERT_FALSE(series.level.moved(series.sensitivity()));
  }
  for (int i = 0; i < 12; ++i) {
    series.add(0.6);
  }
  EXPECT_TRUE(series.level.moved(series.sensitivity()));
}

TEST(Level, WhoIsFarOffFromTheStartIsNotTakenForHealthy) {
  Level level(8, 0.10);
  const Sensitivity sensitivity = Sensitivity::of(0.01, 3, 0.025);
  for (std::uint64_t step = 1; step <= 14; ++step) {
    level.observe(std::log(1.6), sensitivity, {step, 0});
  }
  EXPECT_TRUE(level.alarmed());
  EXPECT_TRUE(level.holds(sensitivity));
  EXPECT_NEAR(std::exp(level.deviation()), 1.6, 1e-9);
}

TEST(Level, WhoSeemedFarOffOnlyWhileLearningIsLearntAgain) {
  Level level(8, 0.12, 0.03);
  const Sensitivity sensitivity = Sensitivity::of(0.02, 3, 0.005);
  std::uint64_t step = 0;
  const auto add = [&](double value) {
    const double jitter = ++step % 2 == 0 ? 0.012 : -0.012;
    level.observe(value + jitter, sensitivity, {step, 0});
  };
  for (int i = 0; i < 8; ++i) {
    add(0.17);
  }
  while (!level.alarmed()) {
    ASSERT_LT(step, 50U);
    add(0.11);
  }
  EXPECT_FALSE(level.holds(sensitivity));
  level.dismiss();
  for (int i = 0; i < 100; ++i) {
    add(0.11);
    ASSERT_FALSE(level.alarmed());
  }
  EXPECT_NEAR(level.baseline(), 0.11, 0.01);
}

TEST(Level, LearnsAnOffsetOnlyWithinTheSpreadOfWhatIsUsual) {
  const Sensitivity sensitivity = Sensitivity::of(0.01, 3, 0.025);
  for (const double above : {0.05, 0.20}) {
    Level level(8, 0.10);
    level.expect(0.30);
    for (std::uint64_t step = 1; step <= 14; ++step) {
      level.observe(0.30 + above, sensitivity, {step, 0});
    }
    EXPECT_EQ(level.alarmed(), above > 0.10);
    EXPECT_NEAR(level.baseline(), above > 0.10 ? 0.30 : 0.35, 1e-9);
  }
}

TEST(NoiseEstimate, FindsTheSigmaOfDifferencesAndIgnoresAShift) {
  NoiseEstimate estimate;
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(0, 0.05);
  double before = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<double> differences;
    for (int rank = 0; rank < 101; ++rank) {
      differences.push_back(std::abs(noise(random) - noise(random)));
    }
    std::nth_element(differences.begin(), differences.begin() + 50, differences.end());
    estimate.add(differences[50]);
    before = estimate.sigma();
  }
  EXPECT_NEAR(before, 0.05, 0.005);
}

}  // namespace
}  // namespace tapas::daemon
