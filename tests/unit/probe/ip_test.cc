#include "agent/probe/ip.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace tapas::agent::probe {
namespace {

Ip ip(const char* text) {
  if (sockaddr_in four = {}; ::inet_pton(AF_INET, text, &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    return ip_of(reinterpret_cast<const sockaddr*>(&four)).value();
  }
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &six.sin6_addr), 1) << text;
  return ip_of(reinterpret_cast<const sockaddr*>(&six)).value();
}

TEST(Ip, IsTheSameForAMappedAddress) {
  EXPECT_EQ(ip("10.0.0.7"), ip("::ffff:10.0.0.7"));
  EXPECT_EQ(to_string(ip("::ffff:10.0.0.7")), "10.0.0.7");
  EXPECT_EQ(to_string(ip("fdaa::7")), "fdaa::7");
  EXPECT_EQ(to_string(ip("::7")), "::7");
}

TEST(Ip, IsNotThereForOtherFamilies) {
  sockaddr other = {};
  EXPECT_FALSE(ip_of(&other));
  EXPECT_FALSE(ip_of(nullptr));
}

TEST(IpRange, HoldsWhatBeginsAlike) {
  const auto holds = [](const char* range, const char* address) {
    const auto parsed = IpRange::parse(range);
    EXPECT_TRUE(parsed.has_value()) << range;
    return parsed && parsed->contains(ip(address));
  };
  EXPECT_TRUE(holds("10.0.0.0/8", "10.255.1.2"));
  EXPECT_FALSE(holds("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(holds("10.1.16.0/20", "10.1.31.255"));
  EXPECT_FALSE(holds("10.1.16.0/20", "10.1.32.0"));
  EXPECT_TRUE(holds("10.0.0.7", "10.0.0.7"));
  EXPECT_FALSE(holds("10.0.0.7", "10.0.0.6"));
  EXPECT_TRUE(holds("0.0.0.0/0", "192.0.2.1"));
  EXPECT_FALSE(holds("0.0.0.0/0", "fdaa::1"));
  EXPECT_TRUE(holds("::/0", "192.0.2.1"));
  EXPECT_TRUE(holds("fdaa::/16", "fdaa:1::1"));
  EXPECT_FALSE(holds("fdaa::/16", "fdab::1"));
  EXPECT_TRUE(holds("fdaa::1", "fdaa::1"));
}

TEST(IpRange, RefusesWhatIsNone) {
  for (const char* bad : {"", "/", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1",
                          "10.0.0.0/8x", "fdaa::/129", "node7", "10.0.0.0/8/8"}) {
    const auto range = IpRange::parse(bad);
    ASSERT_FALSE(range.has_value()) << bad;
    EXPECT_NE(range.error().message.find("write 10.0.0.0/8"), std::string::npos);
  }
}

}  // namespace
}  // namespace tapas::agent::probe
