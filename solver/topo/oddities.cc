#include "solver/topo/oddities.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kSlowPcieBytesPerS = 1e9;
constexpr std::size_t kGpusOfBoard = 8;

std::uint64_t id_of(const NcclTopo& topo, const TopoGpu& gpu) {
  return topo.devices[gpu.device].id;
}

/// A100, H100 and their kin are sold eight to a board with NVSwitches, or as PCIe cards.
bool looks_like_board(const NcclTopo& topo) {
  static const std::set<int> kArchitectures = {80, 90, 100, 103};
  static const std::set<std::uint64_t> kPcieCards = {0x10DE20B5, 0x10DE20F1, 0x10DE2331,
                                                     0x10DE233B};
  return topo.gpus.size() % kGpusOfBoard == 0 &&
         std::all_of(topo.gpus.begin(), topo.gpus.end(), [&](const TopoGpu& gpu) {
           return kArchitectures.count(gpu.sm) > 0 &&
                  kPcieCards.count(topo.devices[gpu.device].model >> 32U) == 0;
         });
}

void warn_of_missing_nvlinks(NcclTopo& topo) {
  const auto without = static_cast<std::size_t>(std::count_if(
      topo.gpus.begin(), topo.gpus.end(), [](const TopoGpu& gpu) { return gpu.nvlinks == 0; }));
  if (without > 0 && without < topo.gpus.size()) {
    topo.warnings.push_back(
        fmt::format("{} of {} GPUs list no NVLink beside others that do: a link is broken or its "
                    "row is missing, and all collectives crawl over PCIe",
                    without, topo.gpus.size()));
  } else if (without > 0 && topo.completed.empty() && looks_like_board(topo)) {
    topo.warnings.push_back(
        fmt::format("NVSwitch GPU without NVLink: none of the {} GPUs lists one, so links between "
                    "them count as PCIe; dump the file again on a healthy server",
                    topo.gpus.size()));
  }
}

void warn_of_odd_targets(NcclTopo& topo) {
  std::set<std::uint64_t> known;
  for (const TopoGpu& gpu : topo.gpus) {
    known.insert(id_of(topo, gpu));
  }
  for (const TopoGpu& gpu : topo.gpus) {
    for (const TopoNvlink& link : gpu.links) {
      if (link.to != TopoNvlink::To::kGpu) {
        continue;
      }
      if (link.target == id_of(topo, gpu)) {
        topo.warnings.push_back(
            fmt::format("GPU {}: an NVLink leads to the GPU itself and joins nothing", gpu.dev));
        break;
      }
      if (known.count(link.target) == 0) {
        topo.warnings.push_back(
            fmt::format("GPU {}: an NVLink leads to a GPU that is not in the file", gpu.dev));
        break;
      }
    }
  }
}

}  // namespace

void drop_one_way_nvlinks(NcclTopo& topo) {
  std::map<std::uint64_t, std::set<std::uint64_t>> peers;
  for (const TopoGpu& gpu : topo.gpus) {
    for (const TopoNvlink& link : gpu.links) {
      if (link.to == TopoNvlink::To::kGpu) {
        peers[id_of(topo, gpu)].insert(link.target);
      }
    }
  }
  std::set<std::uint64_t> known;
  for (const TopoGpu& gpu : topo.gpus) {
    known.insert(id_of(topo, gpu));
  }
  for (TopoGpu& gpu : topo.gpus) {
    const std::uint64_t own = id_of(topo, gpu);
    const auto one_way = [&](const TopoNvlink& link) {
      return link.to == TopoNvlink::To::kGpu && known.count(link.target) > 0 &&
             peers[link.target].count(own) == 0;
    };
    const auto end = std::remove_if(gpu.links.begin(), gpu.links.end(), one_way);
    if (end == gpu.links.end()) {
      continue;
    }
    gpu.links.erase(end, gpu.links.end());
    gpu.nvlinks = 0;
    for (const TopoNvlink& link : gpu.links) {
      gpu.nvlinks += link.count;
    }
    topo.warnings.push_back(
        fmt::format("GPU {}: NVLinks that their other end does not list are left out", gpu.dev));
  }
}

void leave_out_virtual_nics(NcclTopo& topo) {
  const auto is_virtual = [&topo](const TopoNic& nic) {
    return topo.devices[nic.device].kind == TopoKind::kVirtualNic;
  };
  const auto first = std::stable_partition(topo.nics.begin(), topo.nics.end(),
                                           [&](const TopoNic& nic) { return !is_virtual(nic); });
  if (first == topo.nics.begin() || first == topo.nics.end()) {
    return;
  }
  std::set<std::pair<std::string, int>> names;
  for (auto nic = first; nic != topo.nics.end(); ++nic) {
    names.emplace(nic->name, nic->dev);
  }
  topo.nics.erase(first, topo.nics.end());
  topo.warnings.push_back(
      fmt::format("{} interfaces without a PCI device are left out as virtual", names.size()));
}

void warn_of_oddities(NcclTopo& topo) {
  if (topo.gpus.empty()) {
    topo.warnings.push_back("no GPU in the file: good for what is near which NUMA node only");
    return;
  }
  if (topo.nics.empty()) {
    topo.warnings.push_back("no NIC in the file");
  }
  const auto slow = std::count_if(topo.gpus.begin(), topo.gpus.end(), [](const TopoGpu& gpu) {
    return gpu.pcie_bytes_per_s < kSlowPcieBytesPerS;
  });
  if (slow > 0) {
    topo.warnings.push_back(
        fmt::format("{} GPUs behind a PCIe link below 1 GB/s: virtual bridges report no real "
                    "speed; only traffic through the CPU is affected",
                    slow));
  }
  warn_of_odd_targets(topo);
  warn_of_missing_nvlinks(topo);
}

}  // namespace tapas::solver
