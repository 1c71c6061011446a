#include "daemon/net/latency.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

using namespace std::chrono_literals;
using Clock = RecentTimes::Clock;

TEST(RecentTimes, KnowsTheMedianAndTheTailToTenPercent) {
  RecentTimes times;
  const Clock::time_point now{1000s};
  for (int i = 1; i <= 1000; ++i) {
    times.add(std::chrono::microseconds(100 * i), now);
  }
  const RecentTimes::Summary summary = times.summary(now);
  EXPECT_EQ(summary.count, 1000U);
  EXPECT_NEAR(summary.median_s, 0.050, 0.005);
  EXPECT_NEAR(summary.p99_s, 0.099, 0.010);
  EXPECT_DOUBLE_EQ(summary.max_s, 0.1);
}

TEST(RecentTimes, ForgetsWhatIsOlderThanTwentySeconds) {
  RecentTimes times;
  const Clock::time_point begin{1000s};
  times.add(1s, begin);
  times.add(1ms, begin + 11s);
  EXPECT_EQ(times.summary(begin + 12s).count, 2U);
  EXPECT_EQ(times.summary(begin + 22s).count, 1U);
  EXPECT_DOUBLE_EQ(times.summary(begin + 22s).max_s, 0.001);
  EXPECT_EQ(times.summary(begin + 60s).count, 0U);
  EXPECT_EQ(times.summary(begin + 60s).p99_s, 0.0);
}

TEST(RecentTimes, CountsWhateverIsBeyondItsRange) {
  RecentTimes times;
  const Clock::time_point now{1000s};
  times.add(0s, now);
  times.add(1h, now);
  EXPECT_EQ(times.summary(now).count, 2U);
  EXPECT_DOUBLE_EQ(times.summary(now).max_s, 3600.0);
}

}  // namespace
}  // namespace tapas::daemon
