#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace tapas::daemon {

/// Rejected inputs by reason. Thread-safe; reasons are fixed words, so the map stays small.
class RejectCounter {
 public:
  void add(const std::string& reason, std::uint64_t count = 1) {
    const std::lock_guard lock(mutex_);
    counts_[reason] += count;
  }
  [[nodiscard]] std::map<std::string, std::uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace tapas::daemon
