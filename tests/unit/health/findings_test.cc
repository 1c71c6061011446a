#include "agent/health/findings.h"

#include "sys_fixture.h"

namespace tapas::agent::health {
namespace {

/// What is found after `change` between two readings of the fixture.
template <typename Change>
std::vector<Finding> found_after(const SysFixture& fixture, Change change) {
  const NodeHealth before = fixture.read();
  change();
  const NodeHealth now = fixture.read();
  return findings(now, rates_between(before, now));
}
std::vector<Finding> found_in(const SysFixture& fixture) {
  return found_after(fixture, [] {});
}

using Pairs = std::vector<std::pair<std::string, std::string>>;
Pairs kinds(const std::vector<Finding>& findings) {
  Pairs kinds;
  for (const Finding& finding : findings) {
    kinds.emplace_back(finding.device, finding.kind);
    EXPECT_EQ(finding.text.find(finding.device), 0U) << finding.text;
  }
  return kinds;
}

TEST(Findings, AreNoneInHealthyNodes) {
  const RoceNode roce;
  EXPECT_EQ(kinds(found_in(roce)), Pairs{});
  const InfinibandNode infiniband;
  EXPECT_EQ(kinds(found_in(infiniband)), Pairs{});
  const SysFixture empty;
  EXPECT_EQ(kinds(found_in(empty)), Pairs{});
}

TEST(Findings, AreNoneForTrafficAndCongestionMarks) {
  const RoceNode fixture;
  const auto found = found_after(fixture, [&] {
    fixture.write(fixture.port + "/counters/port_rcv_data", "91234567");
    fixture.write(fixture.port + "/counters/port_xmit_wait", "999");
    fixture.write(fixture.port + "/hw_counters/np_ecn_marked_roce_packets", "999");
    fixture.write(fixture.net + "/statistics/rx_bytes", "5000000");
  });
  EXPECT_EQ(kinds(found), Pairs{});
}

TEST(Findings, NameALinkAtHalfItsWidth) {
  const RoceNode fixture;
  fixture.write(fixture.nic + "/current_link_width", "8");
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"0000:18:00.0", "pcie_width"}}));
  EXPECT_EQ(found[0].text,
            "0000:18:00.0 (NIC) runs at PCIe x8 of x16: reseat the card, look at its riser");
}

TEST(Findings, NameALinkAtALowerSpeed) {
  const RoceNode fixture;
  fixture.write(fixture.gpu + "/current_link_speed", "2.5 GT/s PCIe");
  fixture.write(fixture.nic + "/current_link_speed", "8.0 GT/s PCIe");
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"0000:17:00.0", "pcie_speed"}, {"0000:18:00.0", "pcie_speed"}}));
  EXPECT_NE(found[0].text.find("runs at PCIe 2.5 of 16 GT/s: some GPUs do so while idle"),
            std::string::npos);
  EXPECT_NE(found[1].text.find("runs at PCIe 8 of 16 GT/s: reseat"), std::string::npos);
}

TEST(Findings, AskNoMoreOfALinkThanItsSlotCan) {
  const InfinibandNode fixture;  // A Gen5 card at x16 in a Gen4 slot of eight lanes.
  fixture.write(fixture.nics[0] + "/current_link_speed", "16.0 GT/s PCIe");
  fixture.write(fixture.nics[0] + "/current_link_width", "8");
  const std::string slot = std::filesystem::path(fixture.nics[0]).parent_path();
  fixture.write_all(slot, slot_files("16.0 GT/s PCIe", "8"));
  EXPECT_EQ(kinds(found_in(fixture)), Pairs{});
  fixture.write(fixture.nics[0] + "/current_link_width", "4");
  EXPECT_EQ(kinds(found_in(fixture)), (Pairs{{"0000:40:00.0", "pcie_width"}}));
}

TEST(Findings, AreNoneForLinksThatVirtualMachinesDoNotShow) {
  const RoceNode fixture;
  fixture.write(fixture.nic + "/current_link_speed", "Unknown");
  fixture.write(fixture.nic + "/current_link_width", "0");
  EXPECT_EQ(kinds(found_in(fixture)), Pairs{});
}

TEST(Findings, NameADeviceThatLeftTheBus) {
  const RoceNode fixture;
  fixture.write(fixture.gpu + "/current_link_width", "63");
  fixture.remove(fixture.nic + "/current_link_width");
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"0000:17:00.0", "lost"}, {"0000:18:00.0", "lost"}}));
  EXPECT_NE(found[0].text.find("(its registers read as all ones)"), std::string::npos);
  EXPECT_NE(found[1].text.find("(current_link_width is not there)"), std::string::npos);
}

TEST(Findings, NameAHalfRemovedNicInAllItsParts) {
  const RoceNode fixture;
  fixture.remove(fixture.nic + "/class");
  fixture.remove(fixture.port + "/state");
  fixture.remove(fixture.net);
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"0000:18:00.0", "half_removed"},
                                 {"mlx5_0/1", "half_removed"},
                                 {"ens18np0", "half_removed"}}));
  EXPECT_NE(found[1].text.find("(state is not there)"), std::string::npos);
}

TEST(Findings, NameADeviceThatWentAway) {
  const RoceNode fixture;
  const auto found = found_after(fixture, [&] {
    fixture.remove("sys/class/infiniband/mlx5_0");
    fixture.remove("sys/bus/pci/devices/0000:18:00.0");
  });
  EXPECT_EQ(kinds(found), (Pairs{{"0000:18:00.0", "gone"}, {"mlx5_0/1", "gone"}}));
}

TEST(Findings, NameAPortThatIsDown) {
  const InfinibandNode fixture;
  fixture.write(fixture.ports[1] + "/state", "1: DOWN");
  fixture.write(fixture.ports[1] + "/phys_state", "2: Polling");
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"mlx5_1/1", "port_down"}}));
  EXPECT_NE(found[0].text.find("is DOWN, physically Polling"), std::string::npos);
}

TEST(Findings, NameAPortSlowerThanOthersOfItsBoard) {
  const InfinibandNode fixture;
  fixture.write(fixture.ports[2] + "/rate", "200 Gb/sec (4X HDR)");
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"mlx5_2/1", "port_slow"}}));
  EXPECT_NE(
      found[0].text.find("runs at 200 Gb/s, where 2 of the same model in this node have 400 Gb/s"),
      std::string::npos)
      << found[0].text;
  // Another board may be slower by design.
  fixture.write(fixture.nics[2] + "/infiniband/mlx5_2/board_id", "MT_0000000437");
  EXPECT_EQ(kinds(found_in(fixture)), Pairs{});
}

TEST(Findings, NameAnInfinibandPortOnOneLane) {
  const InfinibandNode fixture;
  fixture.write(fixture.nics[2] + "/infiniband/mlx5_2/board_id", "MT_0000000437");
  fixture.write(fixture.ports[2] + "/rate", "100 Gb/sec (1X NDR)");
  EXPECT_EQ(kinds(found_in(fixture)), (Pairs{{"mlx5_2/1", "port_slow"}}));
  fixture.write(fixture.ports[2] + "/link_layer", "Ethernet");  // There one lane is ordinary.
  EXPECT_EQ(kinds(found_in(fixture)), Pairs{});
}

TEST(Findings, NameErrorsThatGrow) {
  const RoceNode fixture;
  const auto found = found_after(fixture, [&] {
    fixture.write(fixture.gpu + "/aer_dev_correctable", "RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 7");
    fixture.write(fixture.port + "/counters/link_downed", "1");
    fixture.write(fixture.port + "/counters/symbol_error", "88");
    fixture.write(fixture.port + "/hw_counters/out_of_sequence", "12");
    fixture.write(fixture.net + "/carrier_changes", "4");
    fixture.write(fixture.net + "/statistics/rx_crc_errors", "5");
  });
  ASSERT_EQ(kinds(found), (Pairs{{"0000:17:00.0", "aer_correctable"},
                                 {"mlx5_0/1", "link_downed"},
                                 {"mlx5_0/1", "symbol_error"},
                                 {"mlx5_0/1", "out_of_sequence"},
                                 {"ens18np0", "carrier_changes"},
                                 {"ens18np0", "rx_crc_errors"}}));
  EXPECT_EQ(found[2].text.find("mlx5_0/1 counted 88 more symbol_error in "), 0U) << found[2].text;
}

TEST(Findings, AreNoneForErrorsOfLongAgoOrBeforeAReset) {
  const RoceNode fixture;
  fixture.write(fixture.port + "/counters/link_downed", "9");
  fixture.write(fixture.port + "/counters/symbol_error", "65535");
  EXPECT_EQ(kinds(found_in(fixture)), Pairs{});
  const auto found = found_after(fixture, [&] {
    fixture.write(fixture.port + "/counters/link_downed", "0");
    fixture.write(fixture.port + "/counters/port_rcv_errors", "3");
  });
  EXPECT_EQ(kinds(found), Pairs{});
}

TEST(Findings, NameAnInterfaceWithoutCarrierButNoneThatIsSetDown) {
  const RoceNode fixture;
  fixture.write(fixture.net + "/carrier", "0");
  EXPECT_EQ(kinds(found_in(fixture)), (Pairs{{"ens18np0", "no_carrier"}}));
  fixture.write(fixture.net + "/flags", "0x1002");
  EXPECT_EQ(kinds(found_in(fixture)), Pairs{});
}

TEST(Findings, NameAnInterfaceSlowerThanOthersOfItsModel) {
  const RoceNode fixture;
  const std::string second = fixture.add_pci(
      "0000:19:00.0", pci_files("0x020000", "15b3:101d", "16.0 GT/s PCIe", "16"), {});
  const std::string net = fixture.add_class("net/ens19np0", second);
  fixture.write_all(net,
                    {{"ifindex", "5"}, {"flags", "0x1003"}, {"carrier", "1"}, {"speed", "25000"}});
  const auto found = found_in(fixture);
  ASSERT_EQ(kinds(found), (Pairs{{"ens19np0", "net_slow"}}));
  EXPECT_NE(
      found[0].text.find("runs at 25 Gb/s, where 1 of the same model in this node has 100 Gb/s"),
      std::string::npos)
      << found[0].text;
}

TEST(Findings, NameHighPressure) {
  const RoceNode fixture;
  fixture.write("proc/pressure/cpu", "some avg10=50.00 avg60=0.00 avg300=0.00 total=5");
  fixture.write("proc/pressure/memory", "some avg10=9.99 avg60=0.00 avg300=0.00 total=5");
  EXPECT_EQ(kinds(found_in(fixture)), (Pairs{{"pressure/cpu", "cpu_pressure"}}));
  fixture.write("proc/pressure/cpu", "some avg10=49.99 avg60=0.00 avg300=0.00 total=5");
  fixture.write("proc/pressure/memory", "some avg10=10.00 avg60=0.00 avg300=0.00 total=5");
  EXPECT_EQ(kinds(found_in(fixture)), (Pairs{{"pressure/memory", "memory_pressure"}}));
}

}  // namespace
}  // namespace tapas::agent::health
