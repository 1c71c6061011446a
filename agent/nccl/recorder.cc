#include "agent/nccl/recorder.h"

#include "agent/nccl/abi.h"
#include "agent/rank/observer.h"

#include <algorithm>
#include <cstring>

namespace tapas::nccl {
namespace {

constexpr std::uint64_t kKnown =
    abi::kColl | abi::kP2p | abi::kKernelCh | abi::kProxyOp | abi::kProxyStep;

std::uint32_t to_us(std::uint64_t ns) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns / 1000, UINT32_MAX));
}

}  // namespace

int Recorder::open(const Settings& settings) {
  settings_ = settings;
  tapas_rank_options options = {};
  options.abi = TAPAS_RANK_ABI;
  options.rank = settings_.slot;
  options.job = settings_.job;
  options.node = settings_.node;
  options.session = settings_.session;
  // NCCL does not tell the device's UUID; a slot stands for one device as well.
  std::memcpy(options.device, &settings_.slot, sizeof(settings_.slot));
  const int error = agent::open_rank(&options, agent::kObserverPrefix, &rank_);
  finder_.set_settle_ns(settings_.settle_ns);
  lost_ = false;
  choose_mask(0);
  return error;
}

void Recorder::close() {
  tapas_rank_close(rank_);
  rank_ = nullptr;
  settings_.peers = nullptr;
  settings_.peer_count = 0;
  open_ = {};
  ended_step_ = 0;
  mask_ = 0;
}

void Recorder::handle(const Event& event, Communicators& communicators) {
  switch (event.kind) {
    case Event::kCollLaunched:
    case Event::kP2pLaunched:
      launched(event);
      break;
    case Event::kFinished:
      finished(event, communicators);
      break;
    case Event::kCommunicatorGone:
      finder_.forget(event.launch.communicator);
      if (!finder_.found()) {
        choose_mask(0);
      }
      break;
  }
}

void Recorder::launched(const Event& event) {
  answer_orders();
  sent_bytes_ += event.launch.bytes;
  if (event.kind == Event::kP2pLaunched || lost_) {
    return;
  }
  const std::uint64_t step = finder_.launch(event.launch);
  if (step == 0) {
    return;
  }
  open_[step % kOpenSteps] = {event.number + 1, step, sent_bytes_};
  sent_bytes_ = 0;
  launched_step_ = step;
  choose_mask(step + 1);
}

void Recorder::finished(const Event& event, Communicators& communicators) {
  inside_.add(event.begin_ns, event.end_ns);
  if (event.p2p) {
    inside_p2p_.add(event.begin_ns, event.end_ns);
  }
  const auto* const open = std::find_if(open_.begin(), open_.end(), [&](const OpenStep& candidate) {
    return candidate.marker == event.number + 1;
  });
  if (open != open_.end()) {
    end_step(*open, event.end_ns, communicators);
  }
}

void Recorder::end_step(const OpenStep& open, std::uint64_t end_ns, Communicators& communicators) {
  const std::uint64_t inside_ns = inside_.close(end_ns);
  const std::uint64_t p2p_ns = inside_p2p_.close(end_ns);
  const bool whole = open.step == ended_step_ + 1 && ended_step_ != 0 && end_ns > ended_ns_;
  const std::uint64_t wall_ns = end_ns - ended_ns_;
  ended_step_ = open.step;
  ended_ns_ = end_ns;
  if (!whole || open.step <= untold_until_ || open.step % settings_.every != 0) {
    return;
  }
  tapas_step_record record = {};
  record.step = open.step;
  record.bytes_moved = open.sent_bytes;
  record.microbatches = 1;
  record.wall_us = to_us(wall_ns);
  record.forward_us = to_us(wall_ns - std::min(wall_ns, inside_ns));
  record.pp_wait_us = to_us(p2p_ns);
  record.dp_collective_us = to_us(inside_ns - std::min(inside_ns, p2p_ns));
  tapas_rank_record(rank_, &record);
  record_links(communicators);
}

void Recorder::record_links(Communicators& communicators) {
  communicators.for_each([&](Communicator& communicator, auto, auto) {
    if (!communicator.whole_job.load(std::memory_order_relaxed)) {
      return;
    }
    communicator.links.take([&](std::uint32_t peer, const Links::Sent& sent) {
      if (peer >= settings_.peer_count) {
        return;
      }
      wire::LinkRecord record;
      record.destination_node = settings_.peers[peer].node;
      record.peer_rank = settings_.peers[peer].slot;
      record.bytes = sent.bytes;
      record.transfer_us = sent.busy_ns / 1000;
      record.transfers = sent.transfers;
      agent::record_link(rank_, record);
    });
  });
}

/// Whoever runs the script decides what it runs: it is told the plan's number, and no plan is
/// switched under a script that takes no orders.
void Recorder::answer_orders() {
  tapas_command command = {};
  if (tapas_rank_poll(rank_, &command) == 0) {
    return;
  }
  tapas_reply reply = {};
  reply.order = command.order;
  reply.ok = command.order == TAPAS_ADOPT || command.order == TAPAS_ABORT;
  reply.epoch = command.epoch;
  reply.step = ended_step_;
  reply.reason = reply.ok != 0 ? nullptr : "only observed by NCCL's plugin: it cannot switch";
  tapas_rank_reply(rank_, &reply);
}

/// Launches come first, the GPU later: all operations of a measured step, and the one that ends the
/// step before it, are launched with everything on.
void Recorder::choose_mask(std::uint64_t next_step) {
  if (settings_.fixed_mask != 0) {
    mask_ = settings_.fixed_mask & kKnown;
    return;
  }
  const bool measure = next_step % settings_.every == 0 || (next_step + 1) % settings_.every == 0;
  mask_ = next_step != 0 && measure ? kKnown : std::uint64_t{abi::kColl};
}

}  // namespace tapas::nccl
