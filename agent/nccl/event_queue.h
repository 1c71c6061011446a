#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// A bounded queue of many writers; the readers take turns (Vyukov's ring of numbered cells).
/// Nobody waits: a full queue refuses, an empty one says so. Its memory is its own.
template <typename T, std::size_t kCells>
class EventQueue {
  static_assert((kCells & (kCells - 1)) == 0);

 public:
  constexpr EventQueue() = default;

  /// False when it would leave less than `spare` places (below kCells) for others.
  bool push(const T& event, std::size_t spare = 0) {
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t last = at + spare;
      if (cells_[last % kCells].turn.load(std::memory_order_relaxed) < lap(last)) {
        return false;
      }
      Cell& cell = cells_[at % kCells];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == lap(at)) {
        if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          cell.event = event;
          cell.turn.store(lap(at) + 1, std::memory_order_release);
          return true;
        }
      } else {
        at = tail_.load(std::memory_order_relaxed);
      }
    }
  }

  /// False when there is none. One reader at a time.
  bool pop(T& event) {
    Cell& cell = cells_[head_ % kCells];
    if (cell.turn.load(std::memory_order_acquire) != lap(head_) + 1) {
      return false;
    }
    event = cell.event;
    cell.turn.store(lap(head_) + 2, std::memory_order_release);
    ++head_;
    return true;
  }

 private:
  /// A cell is free for the nth lap at turn 2n, and filled in it at 2n + 1.
  static std::uint64_t lap(std::uint64_t position) { return position / kCells * 2; }

  struct Cell {
    std::atomic<std::uint64_t> turn{0};
    T event{};
  };
  std::array<Cell, kCells> cells_{};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::uint64_t head_ = 0;
};

}  // namespace tapas::nccl
