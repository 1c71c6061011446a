#include "agent/health/rates.h"

#include "sys_fixture.h"

namespace tapas::agent::health {
namespace {

using Counters = std::map<std::string, std::uint64_t>;

/// Growth over two seconds.
Growth between(Counters before, Counters now) {
  Measured first;
  first.counters = std::move(before);
  Measured second;
  second.counters = std::move(now);
  second.read_at = first.read_at + std::chrono::seconds(2);
  return growth(first, second);
}

TEST(Rates, AreGrowthPerSecond) {
  const Growth growth =
      between({{"rx_bytes", 100}, {"tx_bytes", 7}}, {{"rx_bytes", 300}, {"tx_bytes", 7}});
  EXPECT_EQ(growth.interval_s, 2);
  EXPECT_EQ(growth.of("rx_bytes"), 200U);
  EXPECT_EQ(growth.per_s("rx_bytes"), 100);
  EXPECT_EQ(growth.per_s("tx_bytes"), 0);
  EXPECT_EQ(growth.per_s("rx_errors"), std::nullopt);
  EXPECT_TRUE(growth.gaps.empty());
}

TEST(Rates, GoOnOverAWrapOf32Bits) {
  const Growth growth =
      between({{"rx_bytes", 4294967290}, {"tx_bytes", 5}}, {{"rx_bytes", 4}, {"tx_bytes", 6}});
  EXPECT_EQ(growth.of("rx_bytes"), 10U);
  EXPECT_EQ(growth.of("tx_bytes"), 1U);
}

TEST(Rates, GoOnOverAWrapOf64Bits) {
  const Growth growth = between({{"rx_bytes", 18446744073709551610U}}, {{"rx_bytes", 4}});
  EXPECT_EQ(growth.of("rx_bytes"), 10U);
}

TEST(Rates, AreUnknownAfterAReset) {
  // The driver was loaded anew: rx_packets cannot have wrapped, so rx_bytes has not either.
  const Growth growth = between({{"rx_bytes", 4294967290}, {"rx_packets", 1000}, {"tx_bytes", 3}},
                                {{"rx_bytes", 4}, {"rx_packets", 1}, {"tx_bytes", 9}});
  EXPECT_TRUE(growth.grown.empty());
  EXPECT_EQ(why(growth.gaps, "rates"), "the counters began anew: rx_packets fell from 1000 to 1");
  EXPECT_EQ(growth.per_s("tx_bytes"), std::nullopt);
}

TEST(Rates, TakeAFallOfManyBitsForAReset) {
  EXPECT_TRUE(between({{"rx_bytes", 5000000000}}, {{"rx_bytes", 0}}).grown.empty());
  EXPECT_TRUE(between({{"rx_bytes", 2147483647}}, {{"rx_bytes", 0}}).grown.empty());
}

TEST(Rates, AreUnknownOnceACounterOfInfinibandHasStopped) {
  const Growth growth =
      between({{"symbol_error", 65535}, {"link_downed", 254}, {"port_rcv_data", 4294967000}},
              {{"symbol_error", 65535}, {"link_downed", 255}, {"port_rcv_data", 4294967295}});
  EXPECT_TRUE(growth.grown.empty());
  EXPECT_EQ(why(growth.gaps, "symbol_error"), "has stopped at its maximum, 65535");
  EXPECT_EQ(why(growth.gaps, "link_downed"), "has stopped at its maximum, 255");
  EXPECT_EQ(why(growth.gaps, "port_rcv_data"), "has stopped at its maximum, 4294967295");
  // A port with extended counters goes past it.
  EXPECT_EQ(
      between({{"port_rcv_data", 4294967000}}, {{"port_rcv_data", 4294968000}}).of("port_rcv_data"),
      1000U);
}

TEST(Rates, NeverTakeACounterThatStopsForOneThatWraps) {
  EXPECT_TRUE(between({{"port_xmit_wait", 4294967290}}, {{"port_xmit_wait", 4}}).grown.empty());
}

TEST(Rates, LeaveOutWhatRisesAndFallsByDesign) {
  const Growth growth =
      between({{"active_qps", 8}, {"rx_pkts", 1}}, {{"active_qps", 2}, {"rx_pkts", 5}});
  EXPECT_EQ(growth.of("active_qps"), std::nullopt);
  EXPECT_EQ(growth.of("rx_pkts"), 4U);
}

TEST(Rates, SayWhichCounterWasNotReadBefore) {
  const Growth growth = between({}, {{"rx_bytes", 4}});
  EXPECT_TRUE(growth.grown.empty());
  EXPECT_EQ(why(growth.gaps, "rx_bytes"), "was not read before");
  EXPECT_TRUE(between({{"rx_bytes", 4}}, {}).grown.empty());
}

TEST(Rates, AreUnknownWithoutTime) {
  const Measured device;
  EXPECT_EQ(why(growth(device, device).gaps, "rates"), "no time passed between the readings");
}

TEST(Rates, TellAReconnectedInterfaceByItsIndex) {
  const RoceNode fixture;
  const NodeHealth before = fixture.read();
  fixture.write(fixture.net + "/ifindex", "11");
  fixture.write(fixture.net + "/statistics/rx_bytes", "1000500");
  const Rates rates = rates_between(before, fixture.read());
  const Growth& net = rates.devices.at("ens18np0");
  EXPECT_TRUE(net.grown.empty());
  EXPECT_EQ(why(net.gaps, "rates"), "another device has this name now");
  EXPECT_EQ(rates.devices.at("mlx5_0/1").of("link_downed"), 0U);
}

TEST(Rates, NameDevicesThatCameAndWent) {
  const RoceNode fixture;
  const NodeHealth before = fixture.read();
  fixture.remove("sys/class/net/ens18np0");
  const NodeHealth after = fixture.read();
  EXPECT_EQ(rates_between(before, after).gone, std::vector<std::string>{"ens18np0"});
  const Rates back = rates_between(after, before);
  EXPECT_TRUE(back.gone.empty());
  EXPECT_EQ(why(back.devices.at("ens18np0").gaps, "rates"), "the device was not there before");
}

}  // namespace
}  // namespace tapas::agent::health
