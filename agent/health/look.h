#pragma once

#include "agent/health/read_node.h"
#include "agent/health/report.h"
#include "base/result.h"

#include <chrono>
#include <functional>
#include <string>

namespace tapas::agent::health {

struct LookOptions {
  Roots roots;
  std::string nvml;  ///< The library as dlopen takes it; empty: NVML is not asked.
  std::chrono::milliseconds timeout{10000};  ///< Of one reading of /sys, and of one of NVML.
  std::chrono::duration<double> interval{1};
};

/// Reads the node every interval and shows each reading beside the one before, until `show` says
/// false. Reads in child processes, so that it comes back although a driver may not. Who does not
/// answer or crashes becomes a gap and a finding, and is not asked again for an hour. Fails when
/// `roots.sys` is no folder.
/// Requires: this process has no other threads.
[[nodiscard]] Result<void> look(const LookOptions& options,
                                const std::function<bool(const Report&)>& show);

}  // namespace tapas::agent::health
