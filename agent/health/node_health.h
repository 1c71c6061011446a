#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// What a node shows of itself. An empty optional, or a counter that is not in its map, is unknown
/// and never zero; a gap says why where the kernel should have told.
namespace tapas::agent::health {

/// A value that is missing, and why.
struct Gap {
  std::string what;
  std::string why;
};

/// What all kinds of devices have.
struct Measured {
  std::string name;      ///< Unique in a node.
  std::string identity;  ///< Another one under the same name is another device.
  std::chrono::steady_clock::time_point read_at;
  std::map<std::string, std::uint64_t> counters;  ///< The kernel's names and units, or NVML's.
  std::vector<Gap> gaps;
};

constexpr unsigned kNvidia = 0x10de;  ///< PCI vendor.

struct PcieLink {
  std::optional<double> gt_per_s;
  std::optional<unsigned> lanes;
};

struct NvLink {
  unsigned link = 0;
  bool active = false;
};

/// What NVML tells of a GPU. Its ECC, row and NVLink errors are counters of the device.
struct Gpu {
  unsigned index = 0;  ///< NVML's own, in the order of PCI addresses.
  std::optional<std::string> uuid;
  std::optional<std::string> model;
  std::optional<unsigned> sm_mhz;
  std::optional<unsigned> sm_max_mhz;
  std::optional<unsigned> memory_mhz;
  std::optional<unsigned> memory_max_mhz;
  std::optional<std::uint64_t> throttle_bits;  ///< Clocks event reasons, ThrottleBit and others.
  std::optional<int> temperature_c;
  std::optional<int> to_slowdown_c;  ///< Degrees left until the hardware slows down.
  std::optional<unsigned> power_mw;
  std::optional<unsigned> power_limit_mw;
  std::optional<bool> ecc;
  std::optional<bool> repair_pending;  ///< Memory rows or pages are replaced at the next reset.
  std::optional<bool> repair_failed;   ///< Of rows; unknown where pages are retired instead.
  std::vector<NvLink> nvlinks;         ///< Those whose state is known.
  PcieLink now;
  PcieLink max;  ///< What GPU and system can together.
  std::optional<bool> mig;
  std::vector<std::string> mig_uuids;
};

/// Clocks event reasons that are faults. Hardware slowdown comes with either of the other two
/// hardware ones, or alone from old drivers.
enum ThrottleBit : std::uint64_t {
  kHwSlowdown = 0x8,
  kSwThermal = 0x20,
  kHwThermal = 0x40,
  kHwPowerBrake = 0x80,
};

enum class PciKind {
  kGpu,      ///< NVIDIA or AMD GPU, or another processing accelerator.
  kNic,      ///< Ethernet, InfiniBand or another network controller.
  kUnknown,  ///< Its class cannot be read.
};

/// A GPU or NIC on the PCI bus; virtual functions are left out, their link is that of the physical
/// one. `name` is its address, or "nvml/3" when NVML does not tell it. Counters are PCIe errors
/// (aer_correctable, aer_nonfatal, aer_fatal) and what NVML counts.
struct PciDevice : Measured {
  PciKind kind = PciKind::kUnknown;
  std::optional<unsigned> vendor;
  std::optional<unsigned> device;
  PcieLink now;
  PcieLink max;            ///< What the device can.
  PcieLink slot_max;       ///< What the port above it can.
  std::string lost;        ///< How it shows that it has left the bus; empty when it answers.
  std::optional<Gpu> gpu;  ///< Of NVIDIA GPUs, when NVML answers.
};

/// A port of an RDMA device, "mlx5_0/1"; the device alone when its ports cannot be read.
struct IbPort : Measured {
  std::string pci;                        ///< Address; empty when there is none.
  std::string board;                      ///< Vendor's id of the board; empty when unknown.
  std::optional<std::string> link_layer;  ///< "InfiniBand", or "Ethernet" for RoCE.
  std::optional<std::string> state;       ///< "ACTIVE", "DOWN", "INIT", ...
  std::optional<std::string> phys_state;  ///< "LinkUp", "Polling", "Disabled", ...
  std::optional<double> bits_per_s;       ///< Of an active port.
  std::optional<unsigned> lanes;          ///< Of an active port.
};

/// A network interface of hardware, or a bond.
struct NetDevice : Measured {
  std::string pci;              ///< Address; empty when there is none.
  std::string model;            ///< "15b3:101b" of its PCI function; empty when unknown.
  std::optional<bool> enabled;  ///< Set up by the administrator.
  std::optional<bool> carrier;
  std::optional<double> bits_per_s;
};

/// /proc/pressure/cpu or memory. Counters: some_us, full_us, the time that some or all tasks
/// waited.
struct Pressure : Measured {
  std::optional<double> some_ratio;  ///< Of the last ten seconds, 0 to 1.
  std::optional<double> full_ratio;
};

struct NodeHealth {
  std::vector<PciDevice> pci;
  std::vector<IbPort> ports;
  std::vector<NetDevice> nets;
  std::vector<Pressure> pressures;
  std::optional<std::string> driver;  ///< Version of NVIDIA's, when NVML answers.
  std::vector<Gap> gaps;              ///< What is missing of the node as a whole.
};

}  // namespace tapas::agent::health
