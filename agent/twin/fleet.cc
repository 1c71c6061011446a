#include "agent/twin/fleet.h"

#include "agent/twin/noise.h"
#include "base/log/log.h"
#include "wire/record.h"
#include "wire/record_codec.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <variant>

namespace tapas::twin {

namespace {

std::uint32_t microseconds(double seconds) {
  const double us = std::round(seconds * 1e6);
  constexpr double kMax = std::numeric_limits<std::uint32_t>::max();
  return us >= kMax ? std::numeric_limits<std::uint32_t>::max()
                    : static_cast<std::uint32_t>(std::max(0.0, us));
}

}  // namespace

Fleet::Fleet(const solver::Job& model, VirtualJob& job, Options options)
    : model_(model),
      job_(job),
      options_(std::move(options)),
      links_(std::make_shared<agent::LinkContext>(model.cluster.nodes.size())),
      agents_(model.cluster.nodes.size()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  for (const solver::Node& node : model.cluster.nodes) {
    node_hashes_.push_back(name_hash(node.name));
  }
  for (std::uint32_t rank = 0; rank < model.cluster.device_count(); ++rank) {
    devices_.push_back(job.device_uuid(RankId{rank}));
  }
  follow_ranks({});
}

Fleet::~Fleet() {
  if (epoll_ >= 0) {
    ::close(epoll_);
  }
}

Result<void> Fleet::start(NodeId node, agent::TimePoint now) {
  const std::string& name = model_.cluster.nodes[node.value()].name;
  Slot& slot = agents_[node.value()];
  if (slot.agent) {
    return fail(ErrorCode::kConflict, "the agent of node {} runs already", name);
  }
  const std::uint64_t nonce =
      draw(options_.seed ^ options_.start_ns, Noise::kNonce, node.value(), ++starts_);
  auto agent = NodeAgent::start({links_, options_.endpoint, name, nonce, options_.server_key,
                                 options_.node_keys[node.value()]});
  if (!agent) {
    return tl::unexpected<Error>(agent.error());
  }
  slot = {*std::move(agent), 0, now, true};
  if (auto ok = attach_ranks(node, now); !ok) {
    return ok;
  }
  watch(node.value());
  return {};
}

Result<void> Fleet::attach_ranks(NodeId node, agent::TimePoint now) {
  agent::AgentProtocol& protocol = agents_[node.value()].agent->protocol();
  for (std::uint32_t device = 0; device < model_.cluster.type_of(node).devices; ++device) {
    const RankId rank = model_.cluster.rank_of(node, device);
    if (job_.alive(rank) &&
        !protocol.attach_rank(model_.name, session_, job_.local_rank(rank), now)) {
      return fail(ErrorCode::kInvalid, "the agent of node {} refuses rank {}",
                  model_.cluster.nodes[node.value()].name, rank);
    }
  }
  return {};
}

void Fleet::follow_ranks(agent::TimePoint now) {
  if (job_changes_ == job_.changes()) {
    return;
  }
  job_changes_ = job_.changes();
  const bool anew = job_starts_ != job_.starts();
  job_starts_ = job_.starts();
  session_ = draw(options_.seed, Noise::kSession, options_.start_ns, job_starts_);
  for (std::uint32_t node = 0; node < agents_.size(); ++node) {
    Slot& slot = agents_[node];
    if (!slot.agent) {
      continue;
    }
    slot.due = now;
    for (std::uint32_t device = 0; device < model_.cluster.type_of(NodeId{node}).devices;
         ++device) {
      const RankId rank = model_.cluster.rank_of(NodeId{node}, device);
      if (!job_.alive(rank)) {
        slot.agent->protocol().detach_rank(model_.name, rank.value(), now);
      }
    }
    if (anew) {
      if (auto ok = attach_ranks(NodeId{node}, now); !ok) {
        log::warning_limited("twin", "attach", ok.error().message);
      }
    }
  }
}

/// Waits for the descriptors that the agent's link has now; those of the one before are closed.
void Fleet::watch(std::size_t node) {
  Slot& slot = agents_[node];
  const agent::DaemonLink& link = slot.agent->link();
  const auto descriptors = link.descriptors();
  if (slot.watched == link.rebuilds() || descriptors[0] < 0) {
    return;
  }
  slot.watched = link.rebuilds();
  slot.ready = true;  // What came before counts, too.
  for (const int descriptor : descriptors) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = node;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0 && errno == EEXIST) {
      epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event);
    }
  }
}

void Fleet::wait(double wait_s, const std::vector<int>& fds) {
  std::vector<pollfd> items = {{epoll_, POLLIN, 0}};
  for (const int fd : fds) {
    items.push_back({fd, POLLIN, 0});
  }
  const bool waits = std::none_of(agents_.begin(), agents_.end(),
                                  [](const Slot& slot) { return slot.agent && slot.ready; });
  const int patience_ms = waits ? static_cast<int>(std::ceil(wait_s * 1e3)) : 0;
  if (::poll(items.data(), items.size(), patience_ms) <= 0 || items[0].revents == 0) {
    return;
  }
  std::array<epoll_event, 512> events;
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    agents_[events[static_cast<std::size_t>(i)].data.u64].ready = true;
  }
}

void Fleet::run_one(std::size_t node, agent::TimePoint now) {
  Slot& slot = agents_[node];
  slot.ready = false;
  slot.agent->run(now);
  slot.due = slot.agent->next_wakeup();
  watch(node);
  for (const agent::Action& action : slot.agent->take_orders()) {
    if (const auto* plan = std::get_if<agent::StorePlan>(&action)) {
      if (auto ok = job_.store_plan(plan->epoch, plan->text); !ok) {
        log::warning_limited("twin", "plan", ok.error().message);
      }
    } else if (const auto* command = std::get_if<agent::RankCommand>(&action)) {
      job_.order(*command);
    }
  }
}

void Fleet::run(agent::TimePoint now) {
  follow_ranks(now);
  for (std::size_t node = 0; node < agents_.size(); ++node) {
    if (agents_[node].agent && (agents_[node].ready || agents_[node].due <= now)) {
      run_one(node, now);
    }
  }
  // Answers may come from ranks of any node: a step's end is everybody's.
  for (auto replies = job_.take_replies(); !replies.empty(); replies = job_.take_replies()) {
    std::set<std::size_t> answered;
    for (const agent::RankReply& reply : replies) {
      const std::size_t node = model_.cluster.node_of(RankId{reply.rank}).value();
      if (const auto& agent = agents_[node].agent) {
        agent->protocol().rank_replied(model_.name, reply, now);
        answered.insert(node);
      }
    }
    for (const std::size_t node : answered) {
      run_one(node, now);
    }
  }
}

void Fleet::kill(NodeId node) {
  if (const auto agent = std::exchange(agents_[node.value()].agent, nullptr)) {
    sent_before_ += agent->protocol().records_sent();
    lost_records_ += agent->protocol().records_dropped();
  }
}

void Fleet::record(const FinishedStep& step, agent::TimePoint now) {
  std::vector<std::vector<std::byte>> packed(agents_.size());
  const std::uint64_t job_hash = name_hash(model_.name);
  for (const RankStep& rank : step.truth.ranks) {
    wire::StepRecord record;
    record.flags = step.flags;
    record.job = job_hash;
    record.session = session_;
    record.node = node_hashes_[rank.node.value()];
    record.epoch = step.epoch;
    record.step = step.step;
    record.end_time_ns = options_.start_ns + static_cast<std::uint64_t>(step.end_s * 1e9);
    record.rank = rank.rank.value();
    record.microbatches = rank.microbatches;
    record.device = devices_[rank.rank.value()];
    record.wall_us = microseconds(step.truth.wall_s);
    record.forward_us = microseconds(rank.forward_s);
    record.backward_us = microseconds(rank.backward_s);
    record.optimizer_us = microseconds(rank.optimizer_s);
    record.tp_collective_us = microseconds(rank.tp_collective_s);
    record.pp_wait_us = microseconds(rank.pp_wait_s);
    record.pp_transfer_us = microseconds(rank.pp_transfer_s);
    record.dp_collective_us = microseconds(rank.dp_collective_s);
    record.bytes_moved = static_cast<std::uint64_t>(rank.bytes_sent);
    record.input_wait_us = microseconds(rank.input_wait_s);
    wire::append_record(record, packed[rank.node.value()]);
  }
  record_links(step, packed);
  for (std::size_t node = 0; node < agents_.size(); ++node) {
    if (packed[node].empty()) {
      continue;
    }
    if (agents_[node].agent) {
      agents_[node].agent->protocol().queue_records(packed[node], now);
      agents_[node].due = agents_[node].agent->next_wakeup();
    } else {
      lost_records_ += packed[node].size() / wire::kRecordBytes;
    }
  }
}

void Fleet::record_links(const FinishedStep& step,
                         std::vector<std::vector<std::byte>>& packed) const {
  const std::uint64_t job_hash = name_hash(model_.name);
  for (const LinkStep& link : step.truth.links) {
    const NodeId from = model_.cluster.node_of(link.from);
    const NodeId to = model_.cluster.node_of(link.to);
    wire::LinkRecord record;
    record.job = job_hash;
    record.session = session_;
    record.source_node = node_hashes_[from.value()];
    record.destination_node = node_hashes_[to.value()];
    record.end_time_ns = options_.start_ns + static_cast<std::uint64_t>(step.end_s * 1e9);
    record.bytes = static_cast<std::uint64_t>(link.bytes);
    record.transfer_us = microseconds(link.transfer_s);
    record.rank = link.from.value();
    record.peer_rank = link.to.value();
    record.transfers = 1;
    wire::append_record(record, packed[from.value()]);
  }
}

agent::TimePoint Fleet::next_wakeup() const {
  agent::TimePoint next = agent::TimePoint::max();
  for (const Slot& slot : agents_) {
    if (slot.agent) {
      next = std::min(next, slot.due);
    }
  }
  return next;
}

std::size_t Fleet::count(const std::function<bool(const NodeAgent&)>& is) const {
  return static_cast<std::size_t>(
      std::count_if(agents_.begin(), agents_.end(),
                    [&](const Slot& slot) { return slot.agent && is(*slot.agent); }));
}

std::size_t Fleet::welcome() const {
  return count([](const NodeAgent& agent) {
    return agent.protocol().state() == agent::AgentProtocol::State::kWelcome;
  });
}

std::size_t Fleet::rejected() const {
  return count([](const NodeAgent& agent) {
    return agent.link().refused() ||
           agent.protocol().state() == agent::AgentProtocol::State::kRejected;
  });
}

std::size_t Fleet::running() const {
  return count([](const NodeAgent&) { return true; });
}

std::uint64_t Fleet::records_sent() const {
  std::uint64_t sent = sent_before_;
  for (const Slot& slot : agents_) {
    sent += slot.agent ? slot.agent->protocol().records_sent() : 0;
  }
  return sent;
}

std::uint64_t Fleet::records_dropped() const {
  std::uint64_t dropped = lost_records_;
  for (const Slot& slot : agents_) {
    dropped += slot.agent ? slot.agent->protocol().records_dropped() : 0;
  }
  return dropped;
}

}  // namespace tapas::twin
