#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tapas::daemon {

/// What systemd is told (sd_notify(3)); silent when started by anything else.
class Supervision {
 public:
  using Clock = std::chrono::steady_clock;

  Supervision();

  static void ready();
  static void reloading();
  static void stopping();
  /// Sent when it changes.
  void status(const std::string& text);
  /// Keeps the watchdog quiet, but only while both threads made progress since the last time.
  void beat(std::uint64_t net_beats, std::uint64_t store_beats, Clock::time_point now);

 private:
  Clock::duration interval_{};  ///< 0 = no watchdog
  Clock::time_point last_{};
  std::uint64_t net_beats_ = 0;
  std::uint64_t store_beats_ = 0;
  std::string status_;
};

}  // namespace tapas::daemon
