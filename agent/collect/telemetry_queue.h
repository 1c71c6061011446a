#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tapas::agent {

/// Packed records waiting for the daemon, in a ring allocated once. When full the oldest goes and
/// is counted: fresh step times are worth more than old ones.
class TelemetryQueue {
 public:
  explicit TelemetryQueue(std::size_t max_records);

  /// `records` is a whole number of records.
  void push(std::span<const std::byte> records);
  /// The oldest records, at most one telemetry payload.
  [[nodiscard]] std::vector<std::byte> pop_batch();

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  std::unique_ptr<std::byte[]> ring_;
  std::size_t capacity_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace tapas::agent
