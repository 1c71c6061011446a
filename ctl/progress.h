#pragma once

#include <chrono>
#include <string_view>

namespace tapas::ctl {

/// One line on a terminal's stderr, rewritten, once the work has taken long enough to wonder.
class Progress {
 public:
  /// "solving: 12 % of the shapes". Shown now and then only.
  void report(std::string_view line);
  void clear() const;
  [[nodiscard]] double elapsed_s() const;

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
  bool shown_ = false;
};

}  // namespace tapas::ctl
