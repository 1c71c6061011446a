#pragma once

#include "agent/health/child.h"
#include "agent/health/node_health.h"

#include <cstddef>
#include <string>

namespace tapas::agent::health {

constexpr std::size_t kMaxMigInstances = 64;  ///< Of a GPU; what is over is a gap.

/// Asks the driver's NVML, `library` as dlopen takes it, for all GPUs: only `pci` of the result is
/// filled, with devices that have `gpu`. Whatever NVML does not tell is a gap in its own words, and
/// so is NVML itself when it cannot be opened. A call may take seconds, never return or crash, and
/// the library may start threads and cannot be unloaded safely: so this is for a child process.
[[nodiscard]] NodeHealth read_nvml(const std::string& library, const Step& step);

/// Adds what NVML tells to what /sys tells, by PCI address. Where /sys lacks a link's speed or
/// width it is NVML's.
void join(NodeHealth& node, NodeHealth nvml);

}  // namespace tapas::agent::health
