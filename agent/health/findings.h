#pragma once

#include "agent/health/node_health.h"
#include "agent/health/rates.h"

#include <string>
#include <vector>

namespace tapas::agent::health {

/// Something that is wrong, or looks so.
struct Finding {
  std::string device;
  std::string kind;  ///< Stable word for programs: "pcie_width", "port_down", a counter's name, ...
  std::string text;  ///< One sentence with the device's name, what was seen, and what to look at.
};

constexpr double kCpuPressureRatio = 0.5;     ///< Some task waited for a CPU, of ten seconds.
constexpr double kMemoryPressureRatio = 0.1;  ///< Some task waited for memory.

/// In the order of devices. What is unknown is never a finding, but a device that should answer and
/// does not is. The nominal rate of a port or interface is the best one of its model in this node,
/// as sysfs tells none.
[[nodiscard]] std::vector<Finding> findings(const NodeHealth& now, const Rates& rates);

}  // namespace tapas::agent::health
