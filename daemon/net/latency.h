#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace tapas::daemon {

/// Times of the last 10 to 20 seconds, each to within 10 %. Thread-safe.
class RecentTimes {
 public:
  using Clock = std::chrono::steady_clock;
  struct Summary {
    std::uint64_t count = 0;
    double median_s = 0;
    double p99_s = 0;
    double max_s = 0;
  };

  void add(Clock::duration time, Clock::time_point now);
  [[nodiscard]] Summary summary(Clock::time_point now) const;

 private:
  static constexpr std::size_t kBuckets = 160;  // From a microsecond to four seconds.
  struct Window {
    std::array<std::uint32_t, kBuckets> counts = {};
    double max_s = 0;
  };
  void rotate(Clock::time_point now) const;

  mutable std::mutex mutex_;
  mutable Clock::time_point begin_;
  mutable Window current_;
  mutable Window before_;
};

}  // namespace tapas::daemon
