#pragma once

#include "daemon/control/format.h"
#include "daemon/core/core.h"

#include <cstdint>
#include <map>
#include <string>

namespace tapas::daemon {

/// The state as Prometheus text (format 0.0.4): docs/metrics.md. Made anew for each scrape, so that
/// nothing of a job's past or of a node that left stays. `unwritten`: Store::unwritten().
///
/// Labels are jobs, nodes (the slowest few), phases, kinds and reasons of the code; no rank, step,
/// session, time or text, so that the number of series depends on the jobs only.
[[nodiscard]] std::string metrics_text(const StatusView& status, const WireView& wire,
                                       const std::map<std::string, std::uint64_t>& rejected,
                                       std::uint64_t unwritten);

}  // namespace tapas::daemon
