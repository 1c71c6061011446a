#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tapas::daemon {

/// What one node may send: a rate, and bursts of a few seconds of it. 64 ranks of 8 jobs at a
/// hundred steps a second stay below it.
class Quota {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr double kMessagesPerS = 1000;
  static constexpr double kBytesPerS = 16e6;
  static constexpr double kBurstS = 4;

  /// False when the message is over the limit, and counts for nothing but dropped().
  [[nodiscard]] bool take(std::size_t bytes, Clock::time_point now) {
    const double passed_s = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    messages_ = std::min(kMessagesPerS * kBurstS, messages_ + passed_s * kMessagesPerS);
    bytes_ = std::min(kBytesPerS * kBurstS, bytes_ + passed_s * kBytesPerS);
    const auto size = static_cast<double>(bytes);
    if (messages_ < 1 || bytes_ < size) {
      ++dropped_;
      return false;
    }
    messages_ -= 1;
    bytes_ -= size;
    return true;
  }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  Clock::time_point last_;
  double messages_ = kMessagesPerS * kBurstS;
  double bytes_ = kBytesPerS * kBurstS;
  std::uint64_t dropped_ = 0;
};

}  // namespace tapas::daemon
