#include "sys_fixture.h"

namespace tapas::agent::health {
namespace {

const Step kNoStep = [](std::string_view) {};

template <typename Device>
const Device& only(const std::vector<Device>& devices) {
  EXPECT_EQ(devices.size(), 1U);
  static const Device kNone = {};
  return devices.empty() ? kNone : devices.front();
}

TEST(ReadNode, SeesAnA100WithRoce) {
  const RoceNode fixture;
  const NodeHealth node = fixture.read();
  ASSERT_EQ(node.pci.size(), 2U);
  const PciDevice& gpu = node.pci[0];
  EXPECT_EQ(gpu.name, "0000:17:00.0");
  EXPECT_EQ(gpu.kind, PciKind::kGpu);
  EXPECT_EQ(gpu.vendor, 0x10deU);
  EXPECT_EQ(gpu.device, 0x20b0U);
  EXPECT_EQ(gpu.now.gt_per_s, 16);
  EXPECT_EQ(gpu.now.lanes, 16U);
  EXPECT_EQ(gpu.slot_max.lanes, 16U);
  EXPECT_EQ(gpu.counters.at("aer_correctable"), 4U);
  EXPECT_EQ(gpu.counters.count("aer_fatal"), 0U);
  EXPECT_TRUE(gpu.gaps.empty());
  EXPECT_EQ(node.pci[1].kind, PciKind::kNic);

  const IbPort& port = only(node.ports);
  EXPECT_EQ(port.name, "mlx5_0/1");
  EXPECT_EQ(port.pci, "0000:18:00.0");
  EXPECT_EQ(port.board, "MT_0000000359");
  EXPECT_EQ(port.link_layer, "Ethernet");
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.bits_per_s, 100e9);
  EXPECT_EQ(port.counters.at("port_rcv_data"), 81234567U);
  EXPECT_EQ(port.counters.at("np_ecn_marked_roce_packets"), 123U);
  EXPECT_EQ(port.counters.count("lifespan"), 0U);
  EXPECT_EQ(why(port.gaps, "ecn"), "");
  EXPECT_EQ(why(port.gaps, "pfc"), "the driver has no counters of it in sysfs; ethtool -S may");

  const NetDevice& net = only(node.nets);
  EXPECT_EQ(net.name, "ens18np0");
  EXPECT_EQ(net.pci, "0000:18:00.0");
  EXPECT_EQ(net.model, "15b3:101d");
  EXPECT_EQ(net.carrier, true);
  EXPECT_EQ(net.bits_per_s, 100e9);
  EXPECT_EQ(net.counters.at("tx_bytes"), 2000000U);
  EXPECT_EQ(net.counters.at("carrier_changes"), 2U);

  ASSERT_EQ(node.pressures.size(), 2U);
  EXPECT_NEAR(node.pressures[0].some_ratio.value_or(-1), 0.075, 1e-12);
  EXPECT_NEAR(node.pressures[0].full_ratio.value_or(-1), 0.005, 1e-12);
  EXPECT_EQ(node.pressures[0].counters.at("some_us"), 4057715616U);
  EXPECT_TRUE(node.gaps.empty());
}

TEST(ReadNode, SeesAnH100WithInfiniband) {
  const InfinibandNode fixture;
  const NodeHealth node = fixture.read();
  ASSERT_EQ(node.pci.size(), 4U);
  EXPECT_EQ(node.pci[0].now.gt_per_s, 32);
  ASSERT_EQ(node.ports.size(), 3U);
  for (const IbPort& port : node.ports) {
    EXPECT_EQ(port.link_layer, "InfiniBand");
    EXPECT_EQ(port.bits_per_s, 400e9);
    EXPECT_EQ(port.lanes, 4U);
    EXPECT_TRUE(port.gaps.empty()) << port.gaps.front().what;  // No PFC where there is no Ethernet.
  }
  EXPECT_TRUE(node.nets.empty());
}

TEST(ReadNode, IsFineWithoutGpus) {
  const SysFixture fixture;
  fixture.write("sys/class/net/lo/ifindex", "1");
  fixture.write("sys/class/net/bonding_masters", "bond0");
  const NodeHealth node = fixture.read();
  EXPECT_TRUE(node.pci.empty());
  EXPECT_TRUE(node.ports.empty());
  EXPECT_TRUE(node.nets.empty());
  EXPECT_EQ(why(node.gaps, "rdma"), "class/infiniband is not there");
  EXPECT_NE(why(node.gaps, "pressure"), "");
}

TEST(ReadNode, TellsGpusFromOtherDisplaysAndAccelerators) {
  const SysFixture fixture;
  const auto add = [&](const std::string& address, const std::string& code, const std::string& id) {
    fixture.add_pci(address, pci_files(code, id, "16.0 GT/s PCIe", "16"), {});
  };
  add("0000:01:00.0", "0x030000", "10de:2684");  // An RTX 4090.
  add("0000:02:00.0", "0x120000", "1002:74a1");  // An MI300X.
  add("0000:03:00.0", "0x038000", "1002:738c");  // An MI100.
  add("0000:04:00.0", "0x120000", "1da3:1020");  // A Gaudi 2.
  add("0000:05:00.0", "0x030000", "1a03:2000");  // The display of the BMC.
  add("0000:06:00.0", "0x040300", "10de:22ba");  // The sound of a GPU.
  add("0000:07:00.0", "0x060400", "10b5:8749");  // A PCIe switch.
  const NodeHealth node = fixture.read();
  ASSERT_EQ(node.pci.size(), 4U);
  for (const PciDevice& device : node.pci) {
    EXPECT_EQ(device.kind, PciKind::kGpu) << device.name;
    EXPECT_LT(device.name, "0000:05");
  }
}

TEST(ReadNode, LeavesVirtualFunctionsOut) {
  const RoceNode fixture;
  const std::string virtual_function =
      fixture.add_pci("0000:18:00.1", pci_files("0x020000", "15b3:101e", "Unknown", "0"), {});
  fixture.link(virtual_function + "/physfn", fixture.nic);
  fixture.write(fixture.add_class("net/ens18v0", virtual_function) + "/ifindex", "9");
  fixture.write(fixture.add_class("infiniband/mlx5_1", virtual_function) + "/ports/1/state",
                "4: ACTIVE");
  const NodeHealth node = fixture.read();
  EXPECT_EQ(node.pci.size(), 2U);
  EXPECT_EQ(node.ports.size(), 1U);
  EXPECT_EQ(node.nets.size(), 1U);
}

TEST(ReadNode, SaysWhatAnOldKernelLacks) {
  const RoceNode fixture;
  fixture.remove("proc/pressure");
  fixture.remove(fixture.port + "/hw_counters");
  fixture.remove(fixture.port + "/link_layer");
  fixture.write(fixture.gpu + "/current_link_speed", "8 GT/s");
  fixture.write(fixture.gpu + "/max_link_speed", "16 GT/s");
  fixture.write(fixture.port + "/counters/symbol_error", "N/A (no PMA)");
  for (const char* file :
       {"current_link_speed", "current_link_width", "max_link_speed", "max_link_width"}) {
    fixture.remove(fixture.nic + "/" + file);
  }
  const NodeHealth node = fixture.read();
  EXPECT_EQ(node.pci[0].now.gt_per_s, 8);
  EXPECT_EQ(node.pci[0].max.gt_per_s, 16);
  EXPECT_EQ(node.pci[1].now.lanes, std::nullopt);
  EXPECT_EQ(why(node.pci[1].gaps, "current_link_width"), "is not there");
  EXPECT_EQ(node.pci[1].lost, "");
  const IbPort& port = only(node.ports);
  EXPECT_EQ(port.link_layer, std::nullopt);
  EXPECT_EQ(why(port.gaps, "hw_counters"), "is not there");
  EXPECT_EQ(port.counters.count("symbol_error"), 0U);
  EXPECT_EQ(why(port.gaps, "counters/symbol_error"), "says \"N/A (no PMA)\"");
  EXPECT_EQ(port.counters.at("port_rcv_data"), 81234567U);
  EXPECT_TRUE(node.pressures.empty());
  EXPECT_NE(why(node.gaps, "pressure").find("Linux before 4.20"), std::string::npos);
}

TEST(ReadNode, ReadsPressureOfCpusWithoutALineForAllTasks) {
  const RoceNode fixture;
  fixture.write("proc/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=5");
  const NodeHealth node = fixture.read();
  ASSERT_EQ(node.pressures.size(), 2U);
  EXPECT_EQ(node.pressures[0].some_ratio, 0.01);
  EXPECT_EQ(node.pressures[0].full_ratio, std::nullopt);
  EXPECT_EQ(why(node.pressures[0].gaps, "full"), "the file has no such line");
}

TEST(ReadNode, ShowsAHalfRemovedNicWithGapsAndNoZeros) {
  const RoceNode fixture;
  for (const std::string& folder : {fixture.nic + "/class", fixture.nic + "/vendor",
                                    fixture.port + "/state", fixture.port + "/counters"}) {
    fixture.remove(folder);
  }
  fixture.write(fixture.port + "/rate", "Invalid argument");
  fixture.remove(fixture.net);
  const NodeHealth node = fixture.read();
  ASSERT_EQ(node.pci.size(), 2U);
  EXPECT_EQ(node.pci[1].kind, PciKind::kUnknown);
  EXPECT_EQ(why(node.pci[1].gaps, "class"), "is not there");
  const IbPort& port = only(node.ports);
  EXPECT_EQ(port.state, std::nullopt);
  EXPECT_EQ(port.bits_per_s, std::nullopt);
  EXPECT_EQ(why(port.gaps, "counters"), "is not there");
  EXPECT_EQ(port.counters.count("link_downed"), 0U);
  const NetDevice& net = only(node.nets);  // The link of its class leads nowhere now.
  EXPECT_EQ(net.name, "ens18np0");
  EXPECT_EQ(net.carrier, std::nullopt);
  EXPECT_EQ(net.bits_per_s, std::nullopt);
  EXPECT_EQ(why(net.gaps, "ifindex"), "is not there");
}

TEST(ReadNode, ShowsAnRdmaDeviceWithoutPorts) {
  const RoceNode fixture;
  fixture.remove(fixture.nic + "/infiniband/mlx5_0/ports");
  const NodeHealth node = fixture.read();
  EXPECT_EQ(only(node.ports).name, "mlx5_0");
  EXPECT_EQ(why(only(node.ports).gaps, "ports"), "is not there");
}

TEST(ReadNode, KnowsADeviceThatReadsAsAllOnes) {
  const RoceNode fixture;
  fixture.write(fixture.gpu + "/current_link_width", "63");
  fixture.write(fixture.gpu + "/current_link_speed", "Unknown");
  const NodeHealth node = fixture.read();
  EXPECT_EQ(node.pci[0].now.lanes, std::nullopt);
  EXPECT_EQ(node.pci[0].now.gt_per_s, std::nullopt);
  EXPECT_EQ(node.pci[0].lost, "its registers read as all ones");
}

TEST(ReadNode, GivesNoRateToAPortThatIsDown) {
  const RoceNode fixture;
  fixture.write(fixture.port + "/state", "1: DOWN");
  fixture.write(fixture.port + "/rate", "2.5 Gb/sec (1X SDR)");  // What drivers say then.
  const NodeHealth node = fixture.read();
  const IbPort& port = only(node.ports);
  EXPECT_EQ(port.bits_per_s, std::nullopt);
  EXPECT_EQ(why(port.gaps, "rate"), "the port is not active");
}

TEST(ReadNode, TellsAnInterfaceSetDownFromOneWithoutCarrier) {
  const RoceNode fixture;
  fixture.write(fixture.net + "/flags", "0x1002");
  EXPECT_EQ(only(fixture.read().nets).enabled, false);
  EXPECT_EQ(why(only(fixture.read().nets).gaps, "carrier"), "the interface is set down");
  fixture.write(fixture.net + "/flags", "0x1003");
  fixture.write(fixture.net + "/carrier", "0");
  const NetDevice net = only(fixture.read().nets);
  EXPECT_EQ(net.carrier, false);
  EXPECT_EQ(net.bits_per_s, std::nullopt);
  EXPECT_EQ(why(net.gaps, "speed"), "there is no carrier");
}

TEST(ReadNode, SeesABondAndNoOtherInterfaceWithoutHardware) {
  const RoceNode fixture;
  for (const char* name : {"bond0", "veth1", "lo"}) {
    const std::string folder = fmt::format("sys/devices/virtual/net/{}", name);
    fixture.write_all(
        folder, {{"ifindex", "7"}, {"flags", "0x1003"}, {"carrier", "1"}, {"speed", "200000"}});
    fixture.link(fmt::format("sys/class/net/{}", name), folder);
  }
  fixture.write("sys/devices/virtual/net/bond0/bonding/slaves", "ens18np0");
  const NodeHealth node = fixture.read();
  ASSERT_EQ(node.nets.size(), 2U);
  EXPECT_EQ(node.nets[0].name, "bond0");
  EXPECT_EQ(node.nets[0].bits_per_s, 200e9);
  EXPECT_EQ(node.nets[0].pci, "");
  EXPECT_EQ(node.nets[1].name, "ens18np0");
}

TEST(ReadNode, SaysWhatCannotBeRead) {
  const RoceNode fixture;
  fixture.remove(fixture.gpu + "/max_link_width");
  fixture.write(fixture.gpu + "/max_link_width/a-folder", "");
  fixture.write(fixture.net + "/speed", std::string(5000, '1'));
  const NodeHealth node = fixture.read();
  EXPECT_EQ(node.pci[0].max.lanes, std::nullopt);
  EXPECT_EQ(why(node.pci[0].gaps, "max_link_width"), "is no regular file");
  EXPECT_EQ(why(only(node.nets).gaps, "speed"), "is larger than 4096 bytes");
}

TEST(ReadNode, IsBounded) {
  const RoceNode fixture;
  for (std::size_t i = 0; i < 2 * kMaxCountersPerFolder; ++i) {
    fixture.write(fmt::format("{}/hw_counters/zz{:04}", fixture.port, i), "1");
  }
  for (std::size_t i = 0; i < kMaxDevices + 5; ++i) {
    fixture.write_all(fmt::format("sys/bus/pci/devices/0001:{:02x}:{:02x}.0", i / 32, i % 32),
                      pci_files("0x020000", "8086:1572", "8.0 GT/s PCIe", "8"));
  }
  const NodeHealth node = fixture.read();
  EXPECT_EQ(node.pci.size(), kMaxDevices);
  EXPECT_EQ(why(node.gaps, "pci"), "only the first 256 are shown");
  EXPECT_EQ(only(node.ports).counters.size(), port_counters().size() + kMaxCountersPerFolder);
  EXPECT_EQ(why(only(node.ports).gaps, "hw_counters"), "only the first 128 are shown");
}

TEST(ReadNode, NeedsASysFolder) {
  const SysFixture fixture;
  const auto node = read_node({fixture.path("nothing"), fixture.path("proc")}, kNoStep);
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().message, fixture.path("nothing") + " is no folder that can be read");
}

/// The machine the tests run on: whatever it has, its loopback interface is no hardware.
TEST(ReadNode, ReadsTheRealTree) {
  const auto node = read_node({}, kNoStep);
  if (!node) {
    GTEST_SKIP() << node.error().message;
  }
  for (const NetDevice& net : node->nets) {
    EXPECT_NE(net.name, "lo");
    EXPECT_GT(net.counters.size(), 10U) << net.name;
  }
  for (const PciDevice& device : node->pci) {
    EXPECT_NE(device.kind, PciKind::kUnknown) << device.name;
  }
}

}  // namespace
}  // namespace tapas::agent::health
