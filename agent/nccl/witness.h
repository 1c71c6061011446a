#pragma once

#include "agent/nccl/abi.h"
#include "agent/nccl/communicator.h"
#include "agent/nccl/event_queue.h"
#include "agent/nccl/handle.h"
#include "agent/nccl/pool.h"
#include "agent/nccl/recorder.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// All that the plugin knows about the process it is in. Calls come from any thread of NCCL, in any
/// order, about things that may be gone. Only join() and leave() wait, allocate or make system
/// calls; the others take a place in a pool, write an event into a queue, and whichever call finds
/// nobody else at it empties the queue into the recorder.
class Witness {
 public:
  constexpr Witness() = default;

  /// A communicator came. The empty handle when the plugin is off, and the mask is then 0.
  Handle join(std::uint64_t ranks, std::uint64_t rank, int* mask, abi::Logger log);
  void leave(Handle communicator);

  /// NCCL 2.27 tells nothing of what is in a group that has no handle.
  Handle start_group(Handle communicator);
  Handle launch(Handle communicator, const abi::Coll& coll);
  Handle launch(Handle communicator, const abi::P2p& p2p);
  Handle start(Handle operation, const abi::KernelCh& kernel);
  Handle start(Handle communicator, const abi::ProxyOp& proxy_op);
  Handle start_step(Handle proxy_op);

  void kernel_stopped(Handle kernel, std::uint64_t gpu_ns);
  void wait_for_network(Handle step, std::uint64_t bytes);
  void stop(Handle handle);

 private:
  static constexpr std::size_t kOperations = 8192;
  static constexpr std::size_t kSteps = 4096;
  static constexpr std::size_t kEvents = 8192;
  static constexpr std::size_t kEventsAtOnce = 256;

  struct Operation {
    std::atomic<std::uint64_t> number{0};
    std::atomic<std::uint64_t> begin_ns{0};  ///< GPU clock; the first channel's start
    std::atomic<std::uint64_t> end_ns{0};    ///< GPU clock; the last channel's end
    std::atomic<std::uint64_t> started{0};   ///< a bit for each channel
    std::atomic<std::uint64_t> stopped{0};
    std::atomic<std::uint8_t> channels{0};  ///< 0 = not known: over when all that began have ended
    std::atomic<bool> p2p{false};
  };
  struct Step {
    std::atomic<std::uint64_t> begin_ns{0};  ///< host clock; 0 = not in the network yet
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> proxy_op{0};  ///< handle
  };

  Communicator* find(Handle communicator);
  Handle take_operation(std::uint64_t number, std::uint64_t now_ns, std::uint8_t channels,
                        bool p2p);
  void end_kernel(Handle kernel);
  void end_step(Handle step);
  void tell(const Event& event);
  void empty_queue();
  void set_mask();
  bool open(abi::Logger log);

  Communicators communicators_;
  Pool<Operation, kOperations> operations_;
  Pool<Step, kSteps> steps_;
  EventQueue<Event, kEvents> events_;
  std::atomic<std::uint64_t> launches_{0};
  std::atomic<bool> counts_lost_{false};
  std::atomic<bool> operation_lost_{false};
  std::atomic<bool> measuring_{false};  ///< kernels and transfers are told
  std::atomic<int*> mask_{nullptr};     ///< NCCL's
  std::atomic<int> pid_{0};             ///< own; getpid() is a system call

  std::atomic<bool> recording_{false};  ///< some call has the recorder
  Recorder recorder_;

  std::atomic<bool> joining_{false};  ///< some join() or leave() is under way
  Settings settings_;
  std::size_t joined_ = 0;
  bool complained_ = false;
};

}  // namespace tapas::nccl
