#include "daemon/net/quota.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

using namespace std::chrono_literals;

TEST(Quota, AllowsABurstThenTheRate) {
  Quota quota;
  auto now = Quota::Clock::time_point{1000s};
  const auto taken = [&](std::size_t tries, std::size_t bytes) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < tries; ++i) {
      count += quota.take(bytes, now) ? 1U : 0U;
    }
    return count;
  };
  EXPECT_EQ(taken(10'000, 100), 4000U) << "four seconds of messages at once";
  EXPECT_EQ(quota.dropped(), 6000U);
  now += 500ms;
  EXPECT_EQ(taken(10'000, 100), 500U);
  now += 1h;
  EXPECT_EQ(taken(10'000, 64'000), 1000U) << "64 MB are four seconds of bytes";
  EXPECT_EQ(quota.dropped(), 24'500U);
}

TEST(Quota, IsFarFromWhatSixtyFourRanksSend) {
  Quota quota;
  auto now = Quota::Clock::time_point{1000s};
  for (int i = 0; i < 6000; ++i) {  // 100 steps a second of 64 ranks, for ten minutes.
    now += 100ms;
    ASSERT_TRUE(quota.take(512 * 128, now));
    ASSERT_TRUE(quota.take(128 * 128, now));
  }
}

}  // namespace
}  // namespace tapas::daemon
