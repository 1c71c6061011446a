#include "ctl/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tapas::ctl {

void Progress::report(std::string_view line) {
  static const bool kTerminal = ::isatty(STDERR_FILENO) == 1;
  const auto now = Clock::now();
  if (!kTerminal || now - start_ < std::chrono::seconds(2) ||
      now - last_ < std::chrono::milliseconds(200)) {
    return;
  }
  last_ = now;
  shown_ = true;
  const std::string text = fmt::format("\r\x1b[K{}", line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void Progress::clear() const {
  if (shown_) {
    std::fputs("\r\x1b[K", stderr);
  }
}

double Progress::elapsed_s() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace tapas::ctl
