#include "agent/nccl/witness.h"

#include "agent/nccl/volume.h"

#include <sched.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace tapas::nccl {
namespace {

constexpr std::size_t kChannels = 64;  // NCCL's own limit.
constexpr int kLogWarning = 2;
constexpr int kLogInformation = 3;
constexpr unsigned long kLogAll = ~0UL;

std::uint64_t now_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // Through the vDSO: no system call.
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// For join() and leave(), which may wait.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& taken) : taken_(taken) {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      ::sched_yield();
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& taken_;
};

void say(abi::Logger log, int level, const char* text) {
  if (log != nullptr) {
    log(level, kLogAll, "tapas", 0, "%s", text);
  } else if (level == kLogWarning) {
    std::fprintf(stderr, "%s\n", text);
  }
}

std::uint64_t hash(std::uint64_t seed, const char* text) {
  for (; text != nullptr && *text != '\0'; ++text) {
    seed = (seed ^ static_cast<unsigned char>(*text)) * 0x100000001b3ULL;
  }
  return seed;
}

std::uint64_t hash(std::uint64_t seed, std::uint64_t value) {
  seed = (seed ^ value) * 0x9E3779B97F4A7C15ULL;
  return seed ^ (seed >> 32U);
}

/// The same number for a communicator's place and generation as long as it lives.
std::uint32_t id_of(Handle communicator) {
  return communicator.generation * std::uint32_t{kMaxCommunicators} + communicator.index;
}

template <typename Place>
void lower(std::atomic<Place>& least, Place value) {
  Place seen = least.load(std::memory_order_relaxed);
  while (value < seen && !least.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

template <typename Place>
void raise(std::atomic<Place>& most, Place value) {
  Place seen = most.load(std::memory_order_relaxed);
  while (value > seen && !most.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

bool Witness::open(abi::Logger log) {
  char problem[320] = {};
  bool good = read_settings(settings_, problem, sizeof(problem));
  if (good) {
    const Turn turn(recording_);
    if (const int error = recorder_.open(settings_); error != 0) {
      std::snprintf(problem, sizeof(problem),
                    "cannot open the memory of device slot %u in TAPAS_RANK_DIR: %s",
                    settings_.slot, std::strerror(-error));
      free_settings(settings_);
      good = false;
    }
  }
  if (!good && *problem != '\0' && !complained_) {
    complained_ = true;
    char text[400];
    std::snprintf(text, sizeof(text), "TAPAS: NCCL is not watched: %s", problem);
    say(log, kLogWarning, text);
  }
  return good;
}

Handle Witness::join(std::uint64_t ranks, std::uint64_t rank, int* mask, abi::Logger log) {
  const Turn turn(joining_);
  if (mask == nullptr) {
    return {};
  }
  pid_.store(::getpid(), std::memory_order_relaxed);
  if (joined_ == 0 && !open(log)) {
    std::atomic_ref<int>(*mask).store(0, std::memory_order_relaxed);
    return {};
  }
  mask_.store(mask, std::memory_order_relaxed);
  // At time 0: a communicator never gets stale.
  const auto taken = communicators_.take(0);
  if (taken.item == nullptr) {
    if (!complained_) {
      complained_ = true;
      say(log, kLogWarning, "TAPAS: too many communicators, some are not watched");
    }
  } else {
    taken.item->ranks.store(static_cast<std::uint32_t>(ranks), std::memory_order_relaxed);
    taken.item->links.clear();
    taken.item->whole_job.store(ranks == settings_.peer_count && rank == settings_.rank,
                                std::memory_order_relaxed);
    if (++joined_ == 1) {
      char text[400];
      std::snprintf(text, sizeof(text), "TAPAS: watches NCCL for device slot %u of job %s",
                    settings_.slot, settings_.job);
      say(log, kLogInformation, text);
    }
  }
  {
    const Turn recording(recording_);
    set_mask();
  }
  return taken.item == nullptr ? Handle{}
                               : Handle{Handle::kCommunicator, 0, taken.index, taken.generation};
}

void Witness::leave(Handle communicator) {
  const Turn turn(joining_);
  if (communicator.kind != Handle::kCommunicator ||
      !communicators_.give_back(communicator.index, communicator.generation)) {
    return;
  }
  Event event;
  event.kind = Event::kCommunicatorGone;
  event.launch.communicator = id_of(communicator);
  tell(event);
  if (--joined_ == 0) {
    const Turn recording(recording_);
    for (Event rest; events_.pop(rest);) {
      recorder_.handle(rest, communicators_);
    }
    recorder_.close();
    counts_lost_.store(false, std::memory_order_relaxed);
    set_mask();
    mask_.store(nullptr, std::memory_order_relaxed);
    free_settings(settings_);
  }
}

Communicator* Witness::find(Handle communicator) {
  return communicator.kind == Handle::kCommunicator
             ? communicators_.find(communicator.index, communicator.generation)
             : nullptr;
}

Handle Witness::start_group(Handle communicator) {
  if (find(communicator) == nullptr) {
    return {};
  }
  Handle group = communicator;
  group.kind = Handle::kGroup;
  return group;
}

Handle Witness::take_operation(std::uint64_t number, std::uint64_t now, std::uint8_t channels,
                               bool p2p) {
  if (!measuring_.load(std::memory_order_relaxed)) {
    return {};
  }
  const auto taken = operations_.take(now);
  if (taken.item == nullptr) {
    operation_lost_.store(true, std::memory_order_relaxed);
    return {};
  }
  Operation& operation = *taken.item;
  operation.number.store(number, std::memory_order_relaxed);
  operation.begin_ns.store(UINT64_MAX, std::memory_order_relaxed);
  operation.end_ns.store(0, std::memory_order_relaxed);
  operation.started.store(0, std::memory_order_relaxed);
  operation.stopped.store(0, std::memory_order_relaxed);
  operation.channels.store(channels, std::memory_order_relaxed);
  operation.p2p.store(p2p, std::memory_order_relaxed);
  return {Handle::kOperation, 0, taken.index, taken.generation};
}

Handle Witness::launch(Handle communicator, const abi::Coll& coll) {
  const Communicator* const known = find(communicator);
  if (known == nullptr) {
    return {};
  }
  const std::uint32_t ranks = known->ranks.load(std::memory_order_relaxed);
  const std::uint32_t element = element_bytes(coll.datatype);
  Event event;
  event.kind = Event::kCollLaunched;
  event.number = launches_.fetch_add(1, std::memory_order_relaxed);
  event.launch.communicator = id_of(communicator);
  event.launch.kind = hash(
      hash(hash(hash(event.launch.communicator + 1U, coll.function), coll.datatype), coll.count),
      static_cast<std::uint64_t>(coll.root));
  event.launch.bytes = sent_bytes(coll.function, coll.count, element, ranks);
  event.launch.time_ns = now_ns();
  const Handle handle =
      take_operation(event.number, event.launch.time_ns, coll.channels, /*p2p=*/false);
  tell(event);
  return handle;
}

Handle Witness::launch(Handle communicator, const abi::P2p& p2p) {
  if (find(communicator) == nullptr) {
    return {};
  }
  Event event;
  event.kind = Event::kP2pLaunched;
  event.number = launches_.fetch_add(1, std::memory_order_relaxed);
  if (p2p.function != nullptr && std::strcmp(p2p.function, "Send") == 0) {
    event.launch.bytes = p2p.count * element_bytes(p2p.datatype);
  }
  const Handle handle = take_operation(event.number, now_ns(), 0, /*p2p=*/true);
  tell(event);
  return handle;
}

Handle Witness::start(Handle operation, const abi::KernelCh& kernel) {
  if (operation.kind != Handle::kOperation || kernel.channel >= kChannels) {
    return {};
  }
  Operation* const known = operations_.find(operation.index, operation.generation);
  if (known == nullptr) {
    return {};
  }
  known->started.fetch_or(std::uint64_t{1} << kernel.channel, std::memory_order_relaxed);
  if (kernel.gpu_ns != 0) {
    lower(known->begin_ns, kernel.gpu_ns);
  }
  return {Handle::kKernel, kernel.channel, operation.index, operation.generation};
}

void Witness::kernel_stopped(Handle kernel, std::uint64_t gpu_ns) {
  if (kernel.kind != Handle::kKernel) {
    return;
  }
  if (Operation* const known = operations_.find(kernel.index, kernel.generation)) {
    raise(known->end_ns, gpu_ns);
  }
}

void Witness::end_kernel(Handle kernel) {
  Operation* const known = operations_.find(kernel.index, kernel.generation);
  if (known == nullptr) {
    return;
  }
  const std::uint64_t bit = std::uint64_t{1} << kernel.part;
  const std::uint64_t stopped = known->stopped.fetch_or(bit, std::memory_order_acq_rel) | bit;
  const std::uint8_t channels = known->channels.load(std::memory_order_relaxed);
  const bool over = channels != 0 ? std::popcount(stopped) >= channels
                                  : stopped == known->started.load(std::memory_order_relaxed);
  if (!over) {
    return;
  }
  Event event;
  event.kind = Event::kFinished;
  event.number = known->number.load(std::memory_order_relaxed);
  event.p2p = known->p2p.load(std::memory_order_relaxed);
  event.begin_ns = known->begin_ns.load(std::memory_order_relaxed);
  event.end_ns = known->end_ns.load(std::memory_order_relaxed);
  if (!operations_.give_back(kernel.index, kernel.generation)) {
    return;
  }
  if (event.begin_ns < event.end_ns) {
    tell(event);
  } else {
    operation_lost_.store(true, std::memory_order_relaxed);  // The GPU's clock was 0.
  }
}

Handle Witness::start(Handle communicator, const abi::ProxyOp& proxy_op) {
  // With PXN another process's operation runs here: its handles mean nothing in this one.
  if (proxy_op.pid != pid_.load(std::memory_order_relaxed) || proxy_op.is_send == 0) {
    return {};
  }
  Communicator* const known = find(communicator);
  if (known == nullptr || !known->whole_job.load(std::memory_order_relaxed)) {
    return {};
  }
  const std::size_t link = known->links.find(static_cast<std::uint32_t>(proxy_op.peer));
  if (link == Links::kNone) {
    return {};
  }
  return {Handle::kProxyOp, static_cast<std::uint8_t>(link), communicator.index,
          communicator.generation};
}

Handle Witness::start_step(Handle proxy_op) {
  if (proxy_op.kind != Handle::kProxyOp) {
    return {};
  }
  const auto taken = steps_.take(now_ns());
  if (taken.item == nullptr) {
    return {};
  }
  taken.item->begin_ns.store(0, std::memory_order_relaxed);
  taken.item->bytes.store(0, std::memory_order_relaxed);
  taken.item->proxy_op.store(std::bit_cast<std::uint64_t>(proxy_op), std::memory_order_relaxed);
  return {Handle::kStep, 0, taken.index, taken.generation};
}

void Witness::wait_for_network(Handle step, std::uint64_t bytes) {
  if (step.kind != Handle::kStep) {
    return;
  }
  if (Step* const known = steps_.find(step.index, step.generation)) {
    known->bytes.store(bytes, std::memory_order_relaxed);
    known->begin_ns.store(now_ns(), std::memory_order_relaxed);
  }
}

void Witness::end_step(Handle step) {
  Step* const known = steps_.find(step.index, step.generation);
  if (known == nullptr) {
    return;
  }
  const std::uint64_t begin = known->begin_ns.load(std::memory_order_relaxed);
  const std::uint64_t bytes = known->bytes.load(std::memory_order_relaxed);
  const auto proxy_op = std::bit_cast<Handle>(known->proxy_op.load(std::memory_order_relaxed));
  if (!steps_.give_back(step.index, step.generation) || begin == 0 || bytes == 0) {
    return;
  }
  if (Communicator* const communicator = communicators_.find(proxy_op.index, proxy_op.generation)) {
    communicator->links.add(proxy_op.part, bytes, begin, now_ns());
  }
}

void Witness::stop(Handle handle) {
  // The end of an operation means that it was launched; only its kernels tell when it is over.
  if (handle.kind == Handle::kKernel) {
    end_kernel(handle);
  } else if (handle.kind == Handle::kStep) {
    end_step(handle);
  }
}

void Witness::tell(const Event& event) {
  // Half of the places are for what must not get lost: a step is told by counting collectives.
  const bool counts = event.kind == Event::kCollLaunched || event.kind == Event::kCommunicatorGone;
  if (!events_.push(event, counts ? 0 : kEvents / 2)) {
    (counts ? counts_lost_ : operation_lost_).store(true, std::memory_order_relaxed);
  }
  empty_queue();
}

void Witness::empty_queue() {
  if (recording_.exchange(true, std::memory_order_acquire)) {
    return;  // Somebody is at it; what is left over is taken by the next call.
  }
  Event event;
  for (std::size_t i = 0; i < kEventsAtOnce && events_.pop(event); ++i) {
    recorder_.handle(event, communicators_);
  }
  if (counts_lost_.load(std::memory_order_relaxed)) {
    recorder_.lose_count();
  }
  if (operation_lost_.load(std::memory_order_relaxed)) {
    operation_lost_.store(false, std::memory_order_relaxed);
    recorder_.lose_operation();
  }
  set_mask();
  recording_.store(false, std::memory_order_release);
}

void Witness::set_mask() {
  // Written when it changes only: all threads of NCCL read it at each launch.
  const auto mask = static_cast<int>(recorder_.mask());
  const bool measuring = (recorder_.mask() & abi::kKernelCh) != 0;
  if (measuring_.load(std::memory_order_relaxed) != measuring) {
    measuring_.store(measuring, std::memory_order_relaxed);
  }
  if (int* const nccl = mask_.load(std::memory_order_relaxed)) {
    const std::atomic_ref<int> shown(*nccl);
    if (shown.load(std::memory_order_relaxed) != mask) {
      shown.store(mask, std::memory_order_relaxed);
    }
  }
}

}  // namespace tapas::nccl
