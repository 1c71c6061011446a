#include "ctl/lines.h"

#include <algorithm>
#include <utility>

namespace tapas::ctl {
namespace {

constexpr std::size_t kProgressLines = 4096;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

}  // namespace

Lines::Lines(std::string_view text, ReplayProgress progress)
    : rest_(text.starts_with(kMark) ? text.substr(kMark.size()) : text),
      size_(static_cast<double>(std::max<std::size_t>(rest_.size(), 1))),
      progress_(std::move(progress)) {}

bool Lines::next() {
  if (rest_.empty()) {
    line_ = {};
    return false;
  }
  if (progress_ && number_ % kProgressLines == kProgressLines - 1) {
    progress_(1.0 - static_cast<double>(rest_.size()) / size_);
  }
  const std::size_t end = rest_.find('\n');
  line_ = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (!line_.empty() && line_.back() == '\r') {
    line_.remove_suffix(1);
  }
  ++number_;
  return true;
}

bool Lines::blank() const { return line_.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace tapas::ctl
