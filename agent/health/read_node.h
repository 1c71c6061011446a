#pragma once

#include "agent/health/child.h"
#include "agent/health/node_health.h"
#include "base/result.h"

#include <cstddef>
#include <string>

namespace tapas::agent::health {

struct Roots {
  std::string sys = "/sys";
  std::string proc = "/proc";
};

constexpr std::size_t kMaxDevices = 256;  ///< Of each kind; what is over is a gap.
constexpr std::size_t kMaxCountersPerFolder = 128;

/// Reads the node once; takes milliseconds, or as long as a driver needs to answer, which may be
/// never: `step` is told each device before it is read. Fails with kNotFound when `roots.sys` is no
/// folder: everything else that is missing is a gap. Any thread.
[[nodiscard]] Result<NodeHealth> read_node(const Roots& roots, const Step& step);

}  // namespace tapas::agent::health
