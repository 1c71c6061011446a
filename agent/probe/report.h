#pragma once

#include "agent/probe/load.h"
#include "agent/probe/transfer.h"
#include "base/endpoint.h"
#include "base/json/json.h"

#include <optional>
#include <string>
#include <string_view>

namespace tapas::agent::probe {

struct Report {
  HostPort peer;
  std::string interface;  ///< Of this end; "" where unknown.
  Load load;
  double rtt_s = 0;  ///< The least so far, before the loads.
  Transfer to;
  Transfer from;
};

enum class Verdict {
  kHealthy,   ///< It carried what was tried.
  kSlow,      ///< It did not.
  kUnclear,   ///< It did not, but the link need not be why.
  kMeasured,  ///< Nothing to compare with: as fast as it goes, and no nominal speed.
};
[[nodiscard]] std::string_view to_string(Verdict verdict);

/// What was tried: the paced speed, or all that the link should have.
[[nodiscard]] std::optional<double> tried_bytes_per_s(const Load& load);
[[nodiscard]] Verdict judge(const Load& load, const Transfer& transfer);
/// Both directions carried what was tried.
[[nodiscard]] bool well(const Report& report);

/// "9.57 Gbit/s", from bytes per second.
[[nodiscard]] std::string rate_text(double bytes_per_s);
/// A line for the link and one for each direction.
[[nodiscard]] std::string to_text(const Report& report);
/// Schema tapas.probe/1 (docs/agent.md). What is unknown is null.
[[nodiscard]] json::Value to_json(const Report& report);

}  // namespace tapas::agent::probe
