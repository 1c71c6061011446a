#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Reader of NCCL's topology dump (NCCL_TOPO_DUMP_FILE), `<system version="1">`. Attribute meaning
/// and bandwidth rules: NCCL 2.28.9 src/graph/{xml,topo}.cc.
namespace tapas::solver {

constexpr std::size_t kMaxTopoGpus = 64;

/// What a PCI element is, by its children or its class.
enum class TopoKind : std::uint8_t {
  kUnknown,  ///< a leaf without class and children
  kBridge,
  kGpu,
  kNic,
  kVirtualNic,  ///< interfaces without a PCI device
  kOther        ///< NVSwitches, and GPUs and NICs that the file does not describe
};

struct TopoCpu {
  int numa = -1;
  std::string arch;  ///< "x86_64", "arm64", "ppc64"; empty = not said
  std::string vendor;
  std::uint32_t cores = 0;        ///< in the affinity mask
  double to_cpu_bytes_per_s = 0;  ///< to another NUMA node
};

struct TopoNvlink {
  enum class To : std::uint8_t { kGpu, kSwitch, kCpu };
  To to = To::kSwitch;
  std::uint64_t target = 0;  ///< bus id of the peer GPU
  std::uint32_t count = 0;
};

struct TopoGpu {
  std::string busid;
  int dev = 0;  ///< NVML index
  int rank = 0;
  int sm = 0;  ///< compute capability * 10
  bool gdr = false;
  int numa = -1;
  std::uint32_t device = 0;  ///< index into NcclTopo::devices
  std::vector<TopoNvlink> links;
  std::uint32_t nvlinks = 0;      ///< summed over all targets
  double nvlink_bytes_per_s = 0;  ///< one way, all links
  double pcie_bytes_per_s = 0;    ///< narrowest link up to the CPU
  double c2c_bytes_per_s = 0;     ///< to its CPU, beside PCIe; 0 = none
};

struct TopoNic {
  std::string name;
  int dev = 0;
  int numa = -1;
  std::uint32_t device = 0;  ///< index into NcclTopo::devices; ports of one card share it
  double bytes_per_s = 0;
  double latency_s = 0;
  int port = 0;
  std::uint64_t card = 0;  ///< equal on all ports of one card, where the file says so
  std::uint32_t max_channels = 0;
  bool gdr = false;
  bool coll = false;
};

/// The tree in document order, parents before children.
struct TopoDevice {
  TopoKind kind = TopoKind::kUnknown;
  std::string busid;
  std::uint64_t id = 0;  ///< bus id as a number; 0 for virtual NICs
  std::uint32_t cpu = 0;
  int parent = -1;                   ///< index of the bridge above; -1 = the CPU
  double bytes_per_s = 0;            ///< of the link up
  std::uint64_t model = 0;           ///< vendor, device, subsystem vendor and device, 16 bits each
  std::vector<std::uint64_t> peers;  ///< bus ids of bridges reached directly (pcilink)
};

struct NcclTopo {
  std::vector<TopoCpu> cpus;
  std::vector<TopoDevice> devices;
  std::vector<TopoGpu> gpus;  ///< by dev
  std::vector<TopoNic> nics;  ///< in document order; a fused dump may list one several times
  bool nvswitch = false;
  std::vector<std::string> warnings;
  std::vector<std::string> completed;  ///< what the file did not say and which rule filled in
};

/// `name` is shown in errors. Input is bounded (16 MiB, 65,536 elements, depth 64, 64 GPUs, 256
/// interfaces, 1,024 PCI elements). A file without GPUs is read too; who needs them refuses it.
[[nodiscard]] Result<NcclTopo> parse_nccl_topo(std::string_view text, std::string_view name);
[[nodiscard]] Result<NcclTopo> load_nccl_topo(const std::string& path);

/// The file's text, within the same bounds.
[[nodiscard]] Result<std::string> read_topo_text(const std::string& path);

}  // namespace tapas::solver
