#include "base/endpoint.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas {
namespace {

TEST(Endpoint, TakesNamesAndAddressesWithAPort) {
  for (const char* good :
       {"tcp://127.0.0.1:5570", "tcp://head:7070", "tcp://head-1.rack_2.example:1", "tcp://*:65535",
        "tcp://127.0.0.1:*", "tcp://[::1]:5570", "tcp://[fdaa:5137:3ebf::a]:29521",
        "tcp://[fe80::1%eth0]:5570"}) {
    EXPECT_TRUE(check_endpoint(good)) << good;
  }
  for (const char* bad :
       {"", "127.0.0.1:5570", "ipc:///tmp/x", "tcp://head", "tcp://head:", "tcp://:5570",
        "tcp://head:0", "tcp://head:65536", "tcp://head:55x", "tcp://he ad:5570", "tcp://[]:5570",
        "tcp://[::1]", "tcp://[::1]5570", "tcp://[::g]:5570", "tcp://[::1:5570"}) {
    EXPECT_FALSE(check_endpoint(bad)) << bad;
  }
}

TEST(Endpoint, SaysHowToWriteABareIPv6Address) {
  const auto one = check_endpoint("tcp://::1:5570");
  ASSERT_FALSE(one);
  EXPECT_NE(one.error().message.find("tcp://[::1]:5570"), std::string::npos) << one.error().message;
  const auto two = check_endpoint("tcp://fdaa:5137:3ebf::a:29521");
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("tcp://[fdaa:5137:3ebf::a]:29521"), std::string::npos)
      << two.error().message;
}

TEST(HostPort, IsHostAndPort) {
  EXPECT_EQ(parse_host_port("localhost:28028")->host, "localhost");
  EXPECT_EQ(parse_host_port("10.0.0.1:1")->port, "1");
  EXPECT_EQ(parse_host_port("[fe80::1]:28028")->host, "fe80::1");
  EXPECT_EQ(parse_host_port("10.0.0.1:0", true)->port, "0");
  for (const char* good : {"localhost:28028", "10.0.0.1:1", "[fe80::1]:28028"}) {
    EXPECT_EQ(to_string(*parse_host_port(good)), good);
  }
  for (const char* bad : {"", ":", "host", "host:", ":28028", "host:0", "host:65536", "host:1x",
                          "::1:28028", "[]:5", "host:-1"}) {
    const auto address = parse_host_port(bad);
    ASSERT_FALSE(address.has_value()) << bad;
    EXPECT_NE(address.error().message.find("write host:port"), std::string::npos);
  }
}

}  // namespace
}  // namespace tapas
