#pragma once

#include "agent/health/read_node.h"
#include "tests/unit/agent/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::agent::health {

using Files = std::map<std::string, std::string>;

/// A tree like /sys and /proc, with the kernel's links from classes and buses into the tree of
/// devices.
class SysFixture {
 public:
  SysFixture() {
    for (const char* folder : {"sys/bus/pci/devices", "sys/class/net"}) {
      std::filesystem::create_directories(path(folder));
    }
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] const std::string& root() const { return folder_.path(); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)) << text << "\n";
  }
  void write_all(const std::string& folder, const Files& files) const {
    for (const auto& [name, text] : files) {
      write(folder + "/" + name, text);
    }
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(path(name)); }
  /// A relative link, as all of sysfs are.
  void link(const std::string& name, const std::string& target) const {
    const std::filesystem::path from = path(name);
    std::filesystem::create_directories(from.parent_path());
    std::filesystem::create_symlink(
        std::filesystem::path(path(target)).lexically_relative(from.parent_path()), from);
  }

  /// A PCI function below a port of its own; returns its folder.
  std::string add_pci(const std::string& address, const Files& files, const Files& port) const {
    const std::string above =
        "sys/devices/pci" + address.substr(0, 7) + "/" + address.substr(0, 8) + "1e.0";
    const std::string folder = above + "/" + address;
    write_all(above, port);
    write_all(folder, files);
    link("sys/bus/pci/devices/" + address, folder);
    return folder;
  }
  /// A device of a class on a PCI function, such as "infiniband/mlx5_0"; returns its folder.
  std::string add_class(const std::string& name, const std::string& pci_folder) const {
    std::string folder = pci_folder + "/" + name;
    std::filesystem::create_directories(path(folder));
    link(folder + "/device", pci_folder);
    link("sys/class/" + name, folder);
    return folder;
  }

  [[nodiscard]] NodeHealth read() const {
    auto node = read_node({path("sys"), path("proc")}, [](std::string_view) {});
    EXPECT_TRUE(node) << node.error().message;
    return node ? *std::move(node) : NodeHealth{};
  }

 private:
  TemporaryFolder folder_;
};

inline Files pci_files(const std::string& class_code, const std::string& id,
                       const std::string& speed, const std::string& width) {
  return {{"class", class_code},           {"vendor", "0x" + id.substr(0, 4)},
          {"device", "0x" + id.substr(5)}, {"current_link_speed", speed},
          {"current_link_width", width},   {"max_link_speed", speed},
          {"max_link_width", width}};
}
inline Files slot_files(const std::string& speed, const std::string& width) {
  return {{"max_link_speed", speed}, {"max_link_width", width}};
}

/// Counters of an InfiniBand port, all zero but the traffic.
inline Files port_counters() {
  return {{"symbol_error", "0"},         {"link_error_recovery", "0"},  {"link_downed", "0"},
          {"port_rcv_errors", "0"},      {"port_xmit_discards", "0"},   {"port_xmit_wait", "17"},
          {"port_rcv_data", "81234567"}, {"port_xmit_data", "71234567"}};
}

inline void add_pressure(const SysFixture& fixture) {
  const std::string full = "full avg10=0.50 avg60=0.20 avg300=0.10 total=1000";
  fixture.write("proc/pressure/cpu",
                "some avg10=7.50 avg60=2.10 avg300=0.87 total=4057715616\n" + full);
  fixture.write("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n" + full);
}

/// An A100 SXM and a ConnectX-6 Dx with a RoCE port and its interface, all well.
struct RoceNode : SysFixture {
  std::string gpu;
  std::string nic;
  std::string port;
  std::string net;
  RoceNode() {
    const std::string speed = "16.0 GT/s PCIe";
    gpu = add_pci("0000:17:00.0", pci_files("0x030200", "10de:20b0", speed, "16"),
                  slot_files(speed, "16"));
    write(gpu + "/aer_dev_correctable", "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 4");
    nic = add_pci("0000:18:00.0", pci_files("0x020000", "15b3:101d", speed, "16"),
                  slot_files(speed, "16"));
    const std::string device = add_class("infiniband/mlx5_0", nic);
    write_all(device, {{"board_id", "MT_0000000359"}, {"node_guid", "0c42:a103:0065:7d1e"}});
    port = device + "/ports/1";
    write_all(port, {{"state", "4: ACTIVE"},
                     {"phys_state", "5: LinkUp"},
                     {"link_layer", "Ethernet"},
                     {"rate", "100 Gb/sec (2X HDR)"}});
    write_all(port + "/counters", port_counters());
    write_all(port + "/hw_counters", {{"out_of_sequence", "0"},
                                      {"packet_seq_err", "0"},
                                      {"np_ecn_marked_roce_packets", "123"},
                                      {"np_cnp_sent", "120"},
                                      {"rp_cnp_handled", "45"},
                                      {"lifespan", "10"}});
    net = add_class("net/ens18np0", nic);
    write_all(net, {{"ifindex", "4"},
                    {"flags", "0x1003"},
                    {"carrier", "1"},
                    {"speed", "100000"},
                    {"carrier_changes", "2"}});
    write_all(net + "/statistics",
              {{"rx_bytes", "1000000"}, {"tx_bytes", "2000000"}, {"rx_crc_errors", "0"}});
    add_pressure(*this);
  }
};

/// An H100 SXM and ConnectX-7 NDR InfiniBand ports, all well.
struct InfinibandNode : SysFixture {
  std::string gpu;
  std::vector<std::string> nics;
  std::vector<std::string> ports;
  InfinibandNode() {
    const std::string speed = "32.0 GT/s PCIe";
    gpu = add_pci("0000:1b:00.0", pci_files("0x030200", "10de:2330", speed, "16"),
                  slot_files(speed, "16"));
    for (int i = 0; i < 3; ++i) {
      nics.push_back(add_pci(fmt::format("0000:{}0:00.0", 4 + i),
                             pci_files("0x020700", "15b3:1021", speed, "16"),
                             slot_files(speed, "16")));
      const std::string device = add_class(fmt::format("infiniband/mlx5_{}", i), nics.back());
      write_all(device, {{"board_id", "MT_0000000838"},
                         {"node_guid", fmt::format("946d:ae03:00f1:000{}", i)}});
      ports.push_back(device + "/ports/1");
      write_all(ports.back(), {{"state", "4: ACTIVE"},
                               {"phys_state", "5: LinkUp"},
                               {"link_layer", "InfiniBand"},
                               {"rate", "400 Gb/sec (4X NDR)"}});
      write_all(ports.back() + "/counters", port_counters());
      write_all(ports.back() + "/hw_counters", {{"out_of_sequence", "0"}});
    }
    add_pressure(*this);
  }
};

/// Eight H100 at 0000:1b:00.0 and the following buses, where the fake NVML has them, too.
struct HgxNode : SysFixture {
  std::vector<std::string> gpus;
  HgxNode() {
    const std::string speed = "32.0 GT/s PCIe";
    for (int i = 0; i < 8; ++i) {
      gpus.push_back(add_pci(fmt::format("0000:{:02x}:00.0", 0x1b + i),
                             pci_files("0x030200", "10de:2330", speed, "16"),
                             slot_files(speed, "16")));
    }
    add_pressure(*this);
  }
};

/// Why a value of a device is missing; empty when there is no gap.
inline std::string why(const std::vector<Gap>& gaps, const std::string& what) {
  const auto gap =
      std::find_if(gaps.begin(), gaps.end(), [&](const Gap& one) { return one.what == what; });
  return gap == gaps.end() ? "" : gap->why;
}

}  // namespace tapas::agent::health
