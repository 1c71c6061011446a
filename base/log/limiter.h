#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tapas::log {

/// Lets one line per key through in each interval and counts what it held back. Keys come from
/// outside, so their number is bounded: what does not fit shares one line. Not thread-safe.
class Limiter {
 public:
  using Clock = std::chrono::steady_clock;

  Limiter(Clock::duration interval, std::size_t max_keys)
      : interval_(interval), max_keys_(max_keys) {}

  /// How many lines of this key were held back since the last one that passed; nothing = hold this
  /// one back too.
  std::optional<std::uint64_t> admit(const std::string& key, Clock::time_point now);

 private:
  struct Entry {
    Clock::time_point spoke;
    std::uint64_t held = 0;
  };

  Clock::duration interval_;
  std::size_t max_keys_;
  std::map<std::string, Entry> entries_;
};

}  // namespace tapas::log
