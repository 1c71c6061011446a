#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace tapas {

/// What a full queue does: the policy is part of the type, so it shows in main.cc.
enum class WhenFull {
  kRefuse,      ///< push() returns false; the producer decides. For work that must not be lost.
  kDropOldest,  ///< The oldest entry goes and is counted. For telemetry.
};

/// A bounded queue between threads; many producers, one consumer. All methods are thread-safe.
template <typename T, WhenFull kPolicy>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  /// False when the queue is closed, or full under kRefuse.
  [[nodiscard]] bool push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        return false;
      }
      if (items_.size() >= capacity_) {
        if constexpr (kPolicy == WhenFull::kRefuse) {
          return false;
        }
        items_.pop_front();
        ++dropped_;
      }
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  /// Waits for an entry; nothing when the time is over, or when closed and empty.
  [[nodiscard]] std::optional<T> pop(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, wait, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) {
      return std::nullopt;
    }
    T value = std::move(items_.front());
    items_.pop_front();
    return value;
  }

  /// No more pushes; pop() drains what is left.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  [[nodiscard]] bool closed_and_empty() const {
    const std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  std::uint64_t dropped_ = 0;
  bool closed_ = false;
};

}  // namespace tapas
