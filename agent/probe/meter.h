#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace tapas::agent::probe {

/// Takes down when how many bytes had come, and says what the link carries. The first half of the
/// time does not count: the connection still gains speed there, and a token bucket passes its
/// burst. The second half is cut into ten windows, and their median counts, so that a moment in
/// which the reader did not run changes nothing. Not thread-safe.
class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  /// `total` bytes had come at `when`; both never fall.
  void add(Clock::time_point when, std::uint64_t total);

  [[nodiscard]] double seconds() const;     ///< From the first to the last bytes.
  [[nodiscard]] double measured_s() const;  ///< What counts of them.
  /// 0 before there were two points in time.
  [[nodiscard]] double bytes_per_s() const;

 private:
  struct Sample {
    Clock::time_point when;
    std::uint64_t total = 0;
  };
  [[nodiscard]] double total_at(Clock::time_point when) const;

  std::vector<Sample> samples_;  ///< A millisecond apart, and the newest.
};

}  // namespace tapas::agent::probe
