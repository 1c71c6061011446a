#pragma once

#include "agent/nccl/busy_time.h"
#include "agent/nccl/communicator.h"
#include "agent/nccl/settings.h"
#include "agent/nccl/step_finder.h"
#include "agent/rank/tapas_rank.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// What callbacks tell the recorder.
struct Event {
  enum Kind : std::uint8_t { kCollLaunched, kP2pLaunched, kFinished, kCommunicatorGone };

  Kind kind = kCollLaunched;
  bool p2p = false;            ///< kFinished
  std::uint64_t number = 0;    ///< of the operation, in the order of launches
  CollLaunch launch;           ///< of a kP2pLaunched the bytes, of a kCommunicatorGone which one
  std::uint64_t begin_ns = 0;  ///< kFinished: by the GPU's clock
  std::uint64_t end_ns = 0;
};

/// Turns operations into step and link records. One thread at a time; neither allocates nor makes a
/// system call but in open() and close().
class Recorder {
 public:
  constexpr Recorder() = default;

  /// 0 or a negative errno value.
  int open(const Settings& settings);
  void close();

  void handle(const Event& event, Communicators& communicators);
  /// An event was lost: the markers are no longer all counted, so no step is told any more.
  void lose_count() { lost_ = true; }
  /// An operation was not measured: its step, of which it is one of the newest, would seem to have
  /// spent less inside NCCL, so it is not told.
  void lose_operation() { untold_until_ = launched_step_ + 1; }

  /// Activation mask for what is to be known of the operations launched next.
  [[nodiscard]] std::uint64_t mask() const { return mask_; }

 private:
  static constexpr std::size_t kOpenSteps = 16;  ///< launched, but not finished by the GPU
  struct OpenStep {
    std::uint64_t marker = 0;  ///< number of the operation that ends it, and 1; 0 = none
    std::uint64_t step = 0;
    std::uint64_t sent_bytes = 0;
  };

  void launched(const Event& event);
  void finished(const Event& event, Communicators& communicators);
  void end_step(const OpenStep& open, std::uint64_t end_ns, Communicators& communicators);
  void record_links(Communicators& communicators);
  void answer_orders();
  void choose_mask(std::uint64_t next_step);

  Settings settings_;
  tapas_rank* rank_ = nullptr;
  StepFinder finder_;
  BusyTime inside_;      ///< any operation
  BusyTime inside_p2p_;  ///< point to point only
  std::array<OpenStep, kOpenSteps> open_{};
  std::uint64_t sent_bytes_ = 0;  ///< since the last marker was launched
  std::uint64_t launched_step_ = 0;
  std::uint64_t untold_until_ = 0;
  std::uint64_t ended_step_ = 0;
  std::uint64_t ended_ns_ = 0;  ///< GPU clock
  std::uint64_t mask_ = 0;
  bool lost_ = false;
};

}  // namespace tapas::nccl
