#include "agent/probe/load.h"

#include <gtest/gtest.h>

namespace tapas::agent::probe {
namespace {

Limits share(double of_nominal) {
  Limits limits;
  limits.share = of_nominal;
  return limits;
}

Limits rate(double bytes_per_s) {
  Limits limits;
  limits.share.reset();
  limits.bytes_per_s = bytes_per_s;
  return limits;
}

Limits full() {
  Limits limits;
  limits.share.reset();
  return limits;
}

TEST(Load, IsATenthOfTheNominalSpeedUnlessSaidOtherwise) {
  const auto load = agree({}, {}, 1.25e9);
  ASSERT_TRUE(load.has_value());
  EXPECT_DOUBLE_EQ(*load->bytes_per_s, 1.25e8);
  EXPECT_EQ(load->seconds, 2);
  EXPECT_EQ(load->bytes, 1U << 30U);
}

TEST(Load, IsTheLesserOfBothEnds) {
  EXPECT_EQ(agree(share(0.5), rate(1e6), 1e9)->bytes_per_s, 1e6);
  EXPECT_EQ(agree(rate(1e9), share(0.5), 1e6)->bytes_per_s, 5e5);
  EXPECT_EQ(agree(full(), rate(1e6), 1e9)->bytes_per_s, 1e6);
  EXPECT_FALSE(agree(full(), full(), 1e9)->bytes_per_s);
  Limits brief;
  brief.seconds = 0.5;
  brief.bytes = 7;
  EXPECT_EQ(agree(brief, {}, 1e9)->seconds, 0.5);
  EXPECT_EQ(agree({}, brief, 1e9)->bytes, 7U);
}

TEST(Load, IsNoShareOfASpeedThatNobodyKnows) {
  const auto load = agree(rate(1e6), share(0.1), std::nullopt);
  ASSERT_FALSE(load.has_value());
  EXPECT_NE(load.error().message.find("--rate on both ends"), std::string::npos);
  EXPECT_TRUE(agree(rate(1e6), full(), std::nullopt).has_value());
}

TEST(Load, IsAllowedUpToTheLimits) {
  const Load load = *agree(share(0.1), share(0.1), 1e9);
  EXPECT_TRUE(allows(share(0.1), 1e9, load));
  EXPECT_TRUE(allows(share(0.2), 1e9, load));
  EXPECT_TRUE(allows(full(), 1e9, load));
  EXPECT_FALSE(allows(share(0.05), 1e9, load));
  EXPECT_FALSE(allows(rate(9e7), 1e9, load));

  Load longer = load;
  longer.seconds = 3;
  EXPECT_FALSE(allows(share(0.1), 1e9, longer));
  Load larger = load;
  larger.bytes += 1;
  EXPECT_FALSE(allows(share(0.1), 1e9, larger));
  Load unpaced = load;
  unpaced.bytes_per_s.reset();
  EXPECT_FALSE(allows(share(0.1), 1e9, unpaced));
  EXPECT_TRUE(allows(full(), 1e9, unpaced));
}

TEST(Load, TakesNoLinkForQuickerThanTheOwnInterface) {
  const Load load = *agree(share(0.1), share(0.1), 1e9);
  EXPECT_TRUE(allows(share(0.1), 1e10, load));
  EXPECT_TRUE(allows(share(0.1), std::nullopt, load));
  EXPECT_FALSE(allows(share(0.1), 9e8, load));
  Load unknown = load;
  unknown.nominal_bytes_per_s.reset();
  EXPECT_FALSE(allows(full(), 1e9, unknown));
  EXPECT_FALSE(allows(share(0.1), std::nullopt, unknown));
}

TEST(Load, KnowsTheLesserOfTwoSpeeds) {
  EXPECT_EQ(lesser(1.0, 2.0), 1.0);
  EXPECT_EQ(lesser(std::nullopt, 2.0), 2.0);
  EXPECT_EQ(lesser(1.0, std::nullopt), 1.0);
  EXPECT_EQ(lesser(std::nullopt, std::nullopt), std::nullopt);
}

}  // namespace
}  // namespace tapas::agent::probe
