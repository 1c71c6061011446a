#include "agent/probe/meter.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tapas::agent::probe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

const Meter::Clock::time_point kBegin{};

TEST(Meter, MeasuresASteadyStream) {
  Meter meter;
  for (int i = 0; i <= 20'000; ++i) {
    meter.add(kBegin + microseconds(100 * i), static_cast<std::uint64_t>(i) * 1'000);
  }
  EXPECT_NEAR(meter.bytes_per_s(), 1e7, 1e3);
  EXPECT_DOUBLE_EQ(meter.seconds(), 2.0);
  EXPECT_DOUBLE_EQ(meter.measured_s(), 1.0);
}

TEST(Meter, DoesNotCountTheBurstOfATokenBucket) {
  Meter meter;
  std::uint64_t total = 0;
  for (int ms = 0; ms <= 2'000; ++ms) {
    total += ms < 900 ? 100'000 : 10'000;
    meter.add(kBegin + milliseconds(ms), total);
  }
  EXPECT_NEAR(meter.bytes_per_s(), 1e7, 1e3);
}

TEST(Meter, DoesNotCountAMomentInWhichTheReaderStoodStill) {
  Meter meter;
  for (int ms = 0; ms <= 2'000; ++ms) {
    if (ms < 1'300 || ms > 1'600) {
      // Nothing came for a third of a second, so all that follows is late.
      meter.add(kBegin + milliseconds(ms),
                static_cast<std::uint64_t>(ms > 1'600 ? ms - 300 : ms) * 10'000);
    }
  }
  EXPECT_NEAR(meter.bytes_per_s(), 1e7, 2e5);
}

TEST(Meter, FollowsALinkThatBecameSlowerForMostOfTheTimeThatCounts) {
  Meter meter;
  std::uint64_t total = 0;
  for (int ms = 0; ms <= 2'000; ++ms) {
    total += ms < 1'400 ? 100'000 : 10'000;
    meter.add(kBegin + milliseconds(ms), total);
  }
  EXPECT_NEAR(meter.bytes_per_s(), 1e7, 1e3);
}

TEST(Meter, MeasuresWhatComesInFewLargePieces) {
  Meter meter;
  for (int i = 0; i <= 7; ++i) {
    meter.add(kBegin + milliseconds(300 * i), static_cast<std::uint64_t>(i) * 3'000);
  }
  EXPECT_NEAR(meter.bytes_per_s(), 1e4, 1);
}

TEST(Meter, SaysNothingOfOneMoment) {
  Meter meter;
  EXPECT_EQ(meter.bytes_per_s(), 0);
  meter.add(kBegin, 65'536);
  EXPECT_EQ(meter.bytes_per_s(), 0);
  EXPECT_EQ(meter.seconds(), 0);
}

}  // namespace
}  // namespace tapas::agent::probe
