#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// How long at least one of many intervals lasted, cut at step boundaries. Intervals may overlap
/// and come in any order within the newest 64 that do not touch.
class BusyTime {
 public:
  constexpr BusyTime() = default;

  /// Nanoseconds of one clock. What lies before the last boundary is not counted.
  void add(std::uint64_t begin, std::uint64_t end);

  /// Time covered since the last boundary and until this one; what lies after it is kept.
  std::uint64_t close(std::uint64_t boundary);

 private:
  static constexpr std::size_t kIntervals = 64;
  struct Interval {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  std::array<Interval, kIntervals> intervals_{};  ///< disjoint, ascending
  std::size_t size_ = 0;
  std::uint64_t counted_until_ = 0;
  std::uint64_t sum_ = 0;  ///< of what lies before counted_until_
};

}  // namespace tapas::nccl
