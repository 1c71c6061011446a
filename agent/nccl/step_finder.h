#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// One collective as it was launched.
struct CollLaunch {
  std::uint64_t kind = 0;  ///< the same for what is the same in each step: hash of its description
  std::uint64_t bytes = 0;
  std::uint32_t communicator = 0;
  std::uint64_t time_ns = 0;  ///< host clock
};

/// Finds the steps of a training loop in the sequence of its collectives: NCCL knows none. When the
/// sequence has repeated itself for long enough, its largest collective becomes the marker, and the
/// number of markers since the start gives the number of the step: the same on all ranks, whenever
/// each of them got to know its own sequence. Small collectives do not count: losses, norms and
/// barriers come when they like, and not on all ranks. Fixed memory; one thread.
class StepFinder {
 public:
  static constexpr std::uint64_t kLeastBytes = 4096;

  constexpr StepFinder() = default;

  /// How long the sequence must repeat first. Shorter than a step, and a loop inside the step (its
  /// microbatches) is taken for it.
  void set_settle_ns(std::uint64_t settle_ns) { settle_ns_ = settle_ns; }

  /// Number of the step whose last marker this is; 0 = of none, or steps are not known yet.
  std::uint64_t launch(const CollLaunch& launch);

  [[nodiscard]] bool found() const { return marker_ != 0; }

  /// The communicator is gone. If it had the marker, the search begins anew and the numbers go on.
  void forget(std::uint32_t communicator);

 private:
  static constexpr std::size_t kHistory = 65'536;  ///< twice the longest step, in collectives
  static constexpr std::size_t kKinds = 1024;
  static constexpr std::size_t kLookback = 8;  ///< collectives that tell one place from another
  static constexpr std::size_t kSeen = 16'384;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Kind {
    std::uint64_t hash = 0;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;  ///< 0 = free
    std::uint32_t communicator = 0;
  };
  struct Seen {
    std::uint64_t place = 0;
    std::uint64_t at = 0;
  };

  /// Its place in kinds_; kNone when there are too many kinds.
  std::uint32_t kind_of(const CollLaunch& launch);
  void search(std::uint32_t kind, std::uint64_t time_ns);
  void choose_marker();

  std::uint64_t settle_ns_ = 0;
  std::array<Kind, kKinds> kinds_{};
  std::size_t known_kinds_ = 0;
  std::array<std::uint16_t, kHistory> history_{};
  std::array<std::uint64_t, kHistory> places_{};  ///< hash of the last kLookback kinds
  std::array<Seen, kSeen> seen_{};
  std::uint64_t launches_ = 0;
  std::uint64_t period_ = 0;  ///< candidate; 0 = none
  std::uint64_t run_ = 0;     ///< launches for which it has held
  std::uint64_t run_since_ns_ = 0;
  std::uint32_t marker_ = 0;    ///< its place in kinds_, and 1; 0 = not found
  std::uint64_t per_step_ = 0;  ///< markers
  std::uint64_t last_step_ = 0;
  std::uint64_t base_step_ = 0;
};

}  // namespace tapas::nccl
