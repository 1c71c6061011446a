#pragma once

#include "agent/health/node_health.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tapas::agent::health {

/// How one device's counters grew between two readings. A counter whose growth is unknown is not in
/// `grown`.
struct Growth {
  double interval_s = 0;
  std::map<std::string, std::uint64_t> grown;
  std::vector<Gap> gaps;

  [[nodiscard]] std::optional<std::uint64_t> of(const std::string& counter) const;
  [[nodiscard]] std::optional<double> per_s(const std::string& counter) const;
};

/// Counters of 32 and 64 bits may wrap, once. Those of an InfiniBand port stop at their maximum
/// instead: there, growth is unknown. When any counter fell without having wrapped, or another
/// device has taken the name, all counters of the device began anew, and all growth is unknown.
/// Numbers that rise and fall by design, as the queue pairs in use, are left out.
[[nodiscard]] Growth growth(const Measured& before, const Measured& now);

struct Rates {
  std::map<std::string, Growth> devices;  ///< By name, of all devices read the second time.
  std::vector<std::string> gone;          ///< Names read only the first time.
};
[[nodiscard]] Rates rates_between(const NodeHealth& before, const NodeHealth& now);

}  // namespace tapas::agent::health
