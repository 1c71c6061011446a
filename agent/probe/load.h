#pragma once

#include "base/result.h"

#include <cstdint>
#include <optional>

namespace tapas::agent::probe {

inline constexpr double kMaxSeconds = 60;
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40U;
inline constexpr double kMaxBytesPerS = 1e12;

/// What one end lets a probe put on the link, for each direction.
struct Limits {
  std::optional<double> share = 0.1;  ///< Of the nominal speed; 0 to 1.
  std::optional<double> bytes_per_s;  ///< Instead of a share. Neither: as fast as it goes.
  double seconds = 2;
  std::uint64_t bytes = std::uint64_t{1} << 30U;
};

/// What is put on the link, each direction after the other.
struct Load {
  std::optional<double> bytes_per_s;  ///< Payload; none: as fast as it goes.
  double seconds = 0;
  std::uint64_t bytes = 0;
  std::optional<double> nominal_bytes_per_s;  ///< Of the slower of both ends, where known.
};

/// The lesser of what both ends allow. kInvalid where one allows a share of a speed that nobody
/// knows.
[[nodiscard]] Result<Load> agree(const Limits& one, const Limits& other,
                                 std::optional<double> nominal_bytes_per_s);

/// The lesser of two speeds, of which either may be unknown.
[[nodiscard]] std::optional<double> lesser(std::optional<double> one, std::optional<double> other);

/// Whether a load that the other end names is no more than these limits, and takes no link for
/// quicker than this end's interface, where its speed is known.
[[nodiscard]] bool allows(const Limits& limits, std::optional<double> nominal_bytes_per_s,
                          const Load& load);

}  // namespace tapas::agent::probe
