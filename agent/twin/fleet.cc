#include "agent/twin/fleet.h"

#include "agent/twin/noise.h"
#include "base/log/log.h"
#include "wire/record.h"
#include "wire/record_codec.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <variant>

namespace tapas::twin {

namespace {

using std::chrono::milliseconds;

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
      session_(draw(options_.seed, Noise::kSession, options_.start_ns, 0)),
      agents_(model.cluster.nodes.size()) {
  context_.set(zmq::ctxopt::max_sockets, static_cast<int>(agents_.size()) * 4 + 16);
}

Result<void> Fleet::start(NodeId node, agent::TimePoint now) {
  const std::string& name = model_.cluster.nodes[node.value()].name;
  std::unique_ptr<NodeAgent>& slot = agents_[node.value()];
  if (slot) {
    return fail(ErrorCode::kConflict, "the agent of node {} runs already", name);
  }
  const std::uint64_t nonce =
      draw(options_.seed ^ options_.start_ns, Noise::kNonce, node.value(), ++starts_);
  auto agent = NodeAgent::start(
      context_, {name, options_.endpoint, options_.server_key, options_.node_keys[node.value()]},
      nonce);
  if (!agent) {
    return tl::unexpected<Error>(agent.error());
  }
  slot = std::move(*agent);
  for (std::uint32_t device = 0; device < model_.cluster.type_of(node).devices; ++device) {
    const RankId rank = model_.cluster.rank_of(node, device);
    if (!slot->protocol().attach_rank(model_.name, session_, job_.local_rank(rank), now)) {
      return fail(ErrorCode::kInvalid, "the agent of node {} refuses rank {}", name, rank);
    }
  }
  return {};
}

void Fleet::wait(double wait_s, const std::vector<int>& fds) {
  std::vector<zmq::pollitem_t> items;
  for (const int fd : fds) {
    items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
  }
  for (const auto& agent : agents_) {
    if (agent) {
      for (void* handle : agent->handles()) {
        items.push_back({handle, 0, ZMQ_POLLIN, 0});
      }
    }
  }
  try {
    zmq::poll(items, milliseconds(static_cast<int>(std::ceil(wait_s * 1e3))));
  } catch (const zmq::error_t&) {
    // Interrupted by a signal: the caller looks at its signals next.
  }
}

void Fleet::run(agent::TimePoint now) {
  for (const auto& agent : agents_) {
    if (agent) {
      agent->run(now);
      pass_orders(*agent);
    }
  }
  // Answers may come from ranks of any node: a step's end is everybody's.
  for (auto replies = job_.take_replies(); !replies.empty(); replies = job_.take_replies()) {
    std::set<NodeId> answered;
    for (const agent::RankReply& reply : replies) {
      const NodeId node = model_.cluster.node_of(RankId{reply.rank});
      if (const auto& agent = agents_[node.value()]) {
        agent->protocol().rank_replied(model_.name, reply, now);
        answered.insert(node);
      }
    }
    for (const NodeId node : answered) {
      agents_[node.value()]->run(now);
      pass_orders(*agents_[node.value()]);
    }
  }
}

void Fleet::kill(NodeId node) {
  if (const auto agent = std::exchange(agents_[node.value()], nullptr)) {
    sent_before_ += agent->protocol().records_sent();
    lost_records_ += agent->protocol().records_dropped();
  }
}

void Fleet::pass_orders(NodeAgent& agent) {
  for (const agent::Action& action : agent.take_orders()) {
    if (const auto* plan = std::get_if<agent::StorePlan>(&action)) {
      if (auto ok = job_.store_plan(plan->epoch, plan->text); !ok) {
        log::warning_limited("twin", "plan", ok.error().message);
      }
    } else if (const auto* command = std::get_if<agent::RankCommand>(&action)) {
      job_.order(*command);
    }
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
    record.node = name_hash(model_.cluster.nodes[rank.node.value()].name);
    record.epoch = step.epoch;
    record.step = step.step;
    record.end_time_ns = options_.start_ns + static_cast<std::uint64_t>(step.end_s * 1e9);
    record.rank = rank.rank.value();
    record.microbatches = rank.microbatches;
    record.device = job_.device_uuid(rank.rank);
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
    if (agents_[node]) {
      agents_[node]->protocol().queue_records(packed[node], now);
    } else {
      lost_records_ += packed[node].size() / wire::kRecordBytes;
    }
  }
}

void Fleet::record_links(const FinishedStep& step,
                         std::vector<std::vector<std::byte>>& packed) const {
  for (const LinkStep& link : step.truth.links) {
    const NodeId from = model_.cluster.node_of(link.from);
    const NodeId to = model_.cluster.node_of(link.to);
    wire::LinkRecord record;
    record.job = name_hash(model_.name);
    record.session = session_;
    record.source_node = name_hash(model_.cluster.nodes[from.value()].name);
    record.destination_node = name_hash(model_.cluster.nodes[to.value()].name);
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
  for (const auto& agent : agents_) {
    if (agent) {
      next = std::min(next, agent->protocol().next_wakeup());
    }
  }
  return next;
}

std::size_t Fleet::count(const std::function<bool(const NodeAgent&)>& is) const {
  return static_cast<std::size_t>(std::count_if(
      agents_.begin(), agents_.end(), [&](const auto& agent) { return agent && is(*agent); }));
}

std::size_t Fleet::welcome() const {
  return count([](const NodeAgent& agent) {
    return agent.protocol().state() == agent::AgentProtocol::State::kWelcome;
  });
}

std::size_t Fleet::rejected() const {
  return count([](const NodeAgent& agent) {
    return agent.refused() || agent.protocol().state() == agent::AgentProtocol::State::kRejected;
  });
}

std::size_t Fleet::running() const {
  return count([](const NodeAgent&) { return true; });
}

std::uint64_t Fleet::records_sent() const {
  std::uint64_t sent = sent_before_;
  for (const auto& agent : agents_) {
    sent += agent ? agent->protocol().records_sent() : 0;
  }
  return sent;
}

std::uint64_t Fleet::records_dropped() const {
  std::uint64_t dropped = lost_records_;
  for (const auto& agent : agents_) {
    dropped += agent ? agent->protocol().records_dropped() : 0;
  }
  return dropped;
}

}  // namespace tapas::twin
