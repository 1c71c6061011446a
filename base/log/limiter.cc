#include "base/log/limiter.h"

namespace tapas::log {

std::optional<std::uint64_t> Limiter::admit(const std::string& key, Clock::time_point now) {
  auto entry = entries_.find(key);
  if (entry == entries_.end() && entries_.size() >= max_keys_) {
    std::erase_if(entries_, [&](const auto& item) { return now - item.second.spoke >= interval_; });
    if (entries_.size() >= max_keys_) {
      entry = entries_.find("");
    }
  }
  if (entry == entries_.end()) {
    entries_.emplace(entries_.size() < max_keys_ ? key : "", Entry{now, 0});
    return 0;
  }
  Entry& known = entry->second;
  if (now - known.spoke < interval_) {
    ++known.held;
    return std::nullopt;
  }
  const std::uint64_t held = known.held;
  known = Entry{now, 0};
  return held;
}

}  // namespace tapas::log
