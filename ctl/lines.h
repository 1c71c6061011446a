#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace tapas::ctl {

/// Told now and then which share is done.
using ReplayProgress = std::function<void(double done)>;

/// The lines of a text one by one, without a byte order mark. Must not outlive the text.
class Lines {
 public:
  explicit Lines(std::string_view text, ReplayProgress progress = nullptr);

  /// Goes on to the next line; false after the last.
  bool next();
  /// Without its end.
  [[nodiscard]] std::string_view line() const { return line_; }
  [[nodiscard]] bool blank() const;
  /// From 1.
  [[nodiscard]] std::size_t number() const { return number_; }

 private:
  std::string_view rest_;
  std::string_view line_;
  std::size_t number_ = 0;
  double size_;
  ReplayProgress progress_;
};

}  // namespace tapas::ctl
