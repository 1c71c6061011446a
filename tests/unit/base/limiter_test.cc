#include "base/log/limiter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace tapas::log {
namespace {

using std::chrono::seconds;

TEST(Limiter, HoldsRepeatsBackAndCountsThem) {
  Limiter limiter(seconds(10), 4);
  const Limiter::Clock::time_point start{};
  EXPECT_EQ(limiter.admit("a", start), 0U);
  EXPECT_EQ(limiter.admit("a", start + seconds(1)), std::nullopt);
  EXPECT_EQ(limiter.admit("a", start + seconds(9)), std::nullopt);
  EXPECT_EQ(limiter.admit("b", start + seconds(9)), 0U);
  EXPECT_EQ(limiter.admit("a", start + seconds(10)), 2U);
  EXPECT_EQ(limiter.admit("a", start + seconds(11)), std::nullopt);
}

TEST(Limiter, SpeaksAtOnceAfterAQuietInterval) {
  Limiter limiter(seconds(10), 4);
  const Limiter::Clock::time_point start{};
  EXPECT_EQ(limiter.admit("a", start), 0U);
  EXPECT_EQ(limiter.admit("a", start + seconds(60)), 0U);
}

TEST(Limiter, SharesOneLineAmongKeysThatDoNotFit) {
  Limiter limiter(seconds(10), 4);
  const Limiter::Clock::time_point start{};
  int lines = 0;
  for (int i = 0; i < 1000; ++i) {
    lines += limiter.admit("key" + std::to_string(i), start).has_value() ? 1 : 0;
  }
  EXPECT_EQ(lines, 5);
  EXPECT_EQ(limiter.admit("new", start + seconds(11)), 0U);
  EXPECT_EQ(limiter.admit("newer", start + seconds(11)), 0U);
}

}  // namespace
}  // namespace tapas::log
