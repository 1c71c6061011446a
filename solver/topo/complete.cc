#include "solver/topo/complete.h"

#include "solver/topo/link_rates.h"

#include <fmt/format.h>

#include <algorithm>

namespace tapas::solver {
namespace {

constexpr double kGiga = 1e9;
constexpr std::size_t kGpusOfSwitchedBoard = 8;

/// What a GPU of a skeleton is taken for.
struct Guess {
  int sm;
  std::uint32_t nvlinks;
  double nic_mbps;
};
constexpr Guess kV100 = {70, 0, 100'000};
constexpr Guess kA100 = {80, 12, 200'000};
constexpr Guess kH100 = {90, 18, 400'000};

Guess guess(const NcclTopo& topo, const BareDevice& gpu) {
  const TopoDevice& device = topo.devices[gpu.device];
  const std::uint64_t vendor = device.model >> 48U;
  const std::uint64_t product = (device.model >> 32U) & 0xFFF0U;
  if (vendor == 0x10DE) {
    switch (product) {
      case 0x1DB0:
        return kV100;
      case 0x20B0:
        return kA100;
      case 0x2330:
        return kH100;
      default:
        break;
    }
  }
  if (device.parent < 0) {
    return kV100;
  }
  const float gbs = pci_gbs(gpu.link_speed, 16);
  return gbs >= pci_gbs("32 GT/s", 16) ? kH100 : gbs >= pci_gbs("16 GT/s", 16) ? kA100 : kV100;
}

bool is_efa(const TopoDevice& device) { return device.model >> 48U == 0x1D0F; }

}  // namespace

void complete_skeleton(NcclTopo& topo, const std::vector<BareDevice>& bare) {
  const auto gpu_count = static_cast<std::size_t>(
      std::count_if(bare.begin(), bare.end(), [](const BareDevice& one) { return one.gpu; }));
  double nic_mbps = kV100.nic_mbps;
  for (const BareDevice& one : bare) {
    if (!one.gpu) {
      continue;
    }
    TopoDevice& device = topo.devices[one.device];
    const Guess like = guess(topo, one);
    nic_mbps = like.nic_mbps;
    device.kind = TopoKind::kGpu;
    TopoGpu gpu;
    gpu.busid = device.busid;
    gpu.dev = gpu.rank = static_cast<int>(topo.gpus.size());
    gpu.sm = like.sm;
    gpu.gdr = true;
    gpu.device = one.device;
    if (one.accelerator && gpu_count >= kGpusOfSwitchedBoard && like.nvlinks > 0) {
      gpu.links.push_back({TopoNvlink::To::kSwitch, 0, like.nvlinks});
      gpu.nvlinks = like.nvlinks;
    }
    topo.gpus.push_back(gpu);
  }
  if (topo.gpus.empty()) {
    return;
  }
  const TopoGpu& first = topo.gpus.front();
  topo.completed.push_back(fmt::format(
      "{} GPUs by PCI class, as compute capability {}.{} with {} NVLinks each{}", gpu_count,
      first.sm / 10, first.sm % 10, first.nvlinks, first.links.empty() ? "" : " to a switch"));
  std::size_t nic_count = 0;
  for (const BareDevice& one : bare) {
    if (one.gpu) {
      continue;
    }
    TopoDevice& device = topo.devices[one.device];
    device.kind = TopoKind::kNic;
    TopoNic nic;
    nic.name = device.busid;
    nic.dev = static_cast<int>(topo.nics.size());
    nic.device = one.device;
    const double mbps = is_efa(device) ? 100'000 : nic_mbps;
    nic.bytes_per_s = mbps / 8000 * kGiga;
    nic.card = static_cast<std::uint64_t>(nic.dev);
    nic.max_channels = 64;
    nic.gdr = true;
    topo.nics.push_back(nic);
    ++nic_count;
  }
  if (nic_count > 0) {
    topo.completed.push_back(fmt::format("{} network cards by PCI class, at {:.0f} Gb/s each",
                                         nic_count, topo.nics.back().bytes_per_s * 8 / kGiga));
  }
}

}  // namespace tapas::solver
