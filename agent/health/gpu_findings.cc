#include "agent/health/gpu_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace tapas::agent::health {
namespace {

constexpr std::array<std::pair<std::uint64_t, std::string_view>, 4> kFaults = {
    {{kHwThermal, "the hardware's heat limit"},
     {kHwPowerBrake, "the power brake"},
     {kHwSlowdown, "the hardware's slowdown"},
     {kSwThermal, "the driver's heat limit"}}};

std::vector<std::string_view> throttle_faults(std::uint64_t bits) {
  if ((bits & (kHwThermal | kHwPowerBrake)) != 0) {
    bits &= ~std::uint64_t{kHwSlowdown};  // It says the same again.
  }
  std::vector<std::string_view> faults;
  for (const auto& [bit, text] : kFaults) {
    if ((bits & bit) != 0) {
      faults.push_back(text);
    }
  }
  return faults;
}

std::string_view throttle_advice(std::uint64_t bits) {
  return (bits & kHwPowerBrake) != 0 ? "look at power supplies and power capping of the node"
         : (bits & (kHwThermal | kSwThermal)) != 0 ? "look at cooling and air flow"
                                                   : "look at cooling and power";
}

std::string clock_text(const Gpu& gpu) {
  return gpu.sm_mhz && gpu.sm_max_mhz
             ? fmt::format(" to {} of {} MHz", *gpu.sm_mhz, *gpu.sm_max_mhz)
             : "";
}

}  // namespace

GpuFindings::GpuFindings(const NodeHealth& now, const Rates& rates) : rates_(rates) {
  for (const PciDevice& device : now.pci) {
    if (!device.gpu || device.gpu->nvlinks.empty()) {
      continue;
    }
    Model& model = models_[device.gpu->model.value_or("")];
    model.gpus += device.gpu->mig == true ? 0 : 1;
    for (const NvLink& link : device.gpu->nvlinks) {
      if (link.active) {
        model.up.insert(link.link);
      }
    }
  }
}

std::vector<unsigned> GpuFindings::down(const Gpu& gpu) const {
  const auto model = models_.find(gpu.model.value_or(""));
  // With MIG on, links are not used and may be off.
  if (gpu.mig == true || model == models_.end() || model->second.up.empty()) {
    return {};
  }
  std::vector<unsigned> down;
  for (const NvLink& link : gpu.nvlinks) {
    // What no GPU of a model has up is not wired: a bridge that is not there, a model with fewer.
    if (!link.active && (model->second.gpus == 1 || model->second.up.count(link.link) > 0)) {
      down.push_back(link.link);
    }
  }
  return down;
}

std::vector<std::string> GpuFindings::grown_links(const PciDevice& device) const {
  std::vector<std::string> grown;
  const auto growth = rates_.devices.find(device.name);
  if (growth == rates_.devices.end()) {
    return grown;
  }
  for (const auto& [counter, by] : growth->second.grown) {
    if (by > 0 && counter.compare(0, 6, "nvlink") == 0) {
      grown.push_back(fmt::format("{} by {}", counter, by));
    }
  }
  return grown;
}

void GpuFindings::add(const PciDevice& device, std::vector<Finding>& found) const {
  if (!device.gpu) {
    return;
  }
  const Gpu& gpu = *device.gpu;
  const auto tell = [&](std::string kind, const std::string& what) {
    found.push_back({device.name, std::move(kind),
                     fmt::format("{} (GPU {}) {}", device.name, gpu.index, what)});
  };
  const std::uint64_t bits = gpu.throttle_bits.value_or(0);
  if (const auto faults = throttle_faults(bits); !faults.empty()) {
    tell("throttled", fmt::format("is slowed down{} by {}: {}", clock_text(gpu),
                                  fmt::join(faults, " and "), throttle_advice(bits)));
  }
  if (gpu.to_slowdown_c && *gpu.to_slowdown_c <= 0) {
    tell("hot", fmt::format("is as hot as where it slows down{}: look at cooling and air flow",
                            gpu.temperature_c ? fmt::format(", at {} C", *gpu.temperature_c) : ""));
  }
  const auto uncorrected = device.counters.find("ecc_uncorrected");
  if (uncorrected != device.counters.end() && uncorrected->second > 0) {
    tell("ecc_uncorrected",
         fmt::format("has counted {} uncorrected memory errors since its driver was loaded: drain "
                     "the node, reset the GPU, and replace it if they come again",
                     uncorrected->second));
  }
  if (gpu.repair_failed == true) {
    tell("repair_failed", "could not replace a bad row of its memory: replace the GPU");
  }
  if (gpu.repair_pending == true) {
    tell("repair_pending",
         "replaces bad memory at its next reset: drain the node, then reset the GPU");
  }
  if (const auto links = down(gpu); !links.empty()) {
    tell("nvlink_down",
         fmt::format("has NVLink {} of {} down: look at the kernel's log and the fabric manager, "
                     "then at the GPU's seat",
                     fmt::join(links, ", "), gpu.nvlinks.size()));
  }
  if (const auto grown = grown_links(device); !grown.empty()) {
    constexpr std::size_t kShown = 4;
    const std::size_t shown = std::min(grown.size(), kShown);
    const auto first = grown.begin();
    tell(
        "nvlink_errors",
        fmt::format("counts NVLink errors ({}{}): look at the kernel's log and the GPU's seat",
                    fmt::join(first, first + static_cast<std::ptrdiff_t>(shown), ", "),
                    grown.size() > shown ? fmt::format(" and {} more", grown.size() - shown) : ""));
  }
}

}  // namespace tapas::agent::health
