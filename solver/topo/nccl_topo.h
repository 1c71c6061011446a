#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Reader of NCCL's topology dump (NCCL_TOPO_DUMP_FILE), `<system version="1">`. Attribute meaning
/// and bandwidth rules: NCCL 2.28.9 src/graph/{xml,topo}.cc.
namespace tapas::solver {

struct TopoGpu {
  std::string busid;
  int dev = 0;  ///< NVML index
  int sm = 0;   ///< compute capability * 10
  int numa = -1;
  std::uint32_t nvlinks = 0;      ///< summed over all targets
  double nvlink_bytes_per_s = 0;  ///< one way, all links
  double pcie_bytes_per_s = 0;    ///< narrowest link up to the CPU
};
struct TopoNic {
  std::string name;
  int numa = -1;
  double bytes_per_s = 0;
  bool behind_switch = false;  ///< shares a PCIe switch with a GPU
};
struct NcclTopo {
  std::vector<TopoGpu> gpus;  ///< by dev
  std::vector<TopoNic> nics;
  bool nvswitch = false;
  /// Per GPU (index as in `gpus`) the indices of its nearest NICs.
  std::vector<std::vector<std::uint32_t>> nics_of_gpu;
  std::vector<std::string> warnings;
};

/// `name` is shown in errors. Input is bounded (16 MiB, 65,536 elements, depth 64).
[[nodiscard]] Result<NcclTopo> parse_nccl_topo(std::string_view text, std::string_view name);
[[nodiscard]] Result<NcclTopo> load_nccl_topo(const std::string& path);

}  // namespace tapas::solver
