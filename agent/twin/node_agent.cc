#include "agent/twin/node_agent.h"

#include "base/log/log.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <variant>

namespace tapas::twin {

namespace {

// A thousand nodes share one process: a node keeps what a real agent's ring holds for a while.
constexpr std::size_t kMaxQueuedRecords = 4096;
constexpr std::chrono::milliseconds kFullPause{10};

agent::AgentProtocol::Options options_of(const agent::DaemonLink::Options& link) {
  agent::AgentProtocol::Options options;
  options.node = link.node;
  options.nonce = link.nonce;
  options.max_queued_records = kMaxQueuedRecords;
  return options;
}

}  // namespace

NodeAgent::NodeAgent(const agent::DaemonLink::Options& options, agent::DaemonLink link)
    : protocol_(options_of(options)), link_(std::move(link)) {}

Result<std::unique_ptr<NodeAgent>> NodeAgent::start(agent::DaemonLink::Options options) {
  auto link = agent::DaemonLink::open(options);
  if (!link) {
    return fail_in("node " + options.node, link.error());
  }
  return std::unique_ptr<NodeAgent>(new NodeAgent(options, *std::move(link)));
}

void NodeAgent::run(agent::TimePoint now) {
  ran_at_ = now;
  // Sending may take the news that something came from the descriptor: look last.
  do {
    protocol_.tick(now);
    act();
    flush(now);
  } while (receive(now));
}

bool NodeAgent::receive(agent::TimePoint now) {
  const agent::DaemonLink::Incoming incoming = link_.poll(std::chrono::milliseconds{0});
  if (incoming.lost) {
    protocol_.disconnected(now);
  }
  if (incoming.connected) {
    protocol_.connected(now);
  }
  for (const wire::ToAgent& message : incoming.messages) {
    protocol_.received(message, now);
  }
  link_.set_spread(protocol_.reconnect_spread_s());
  return incoming.lost || incoming.connected || !incoming.messages.empty();
}

agent::TimePoint NodeAgent::next_wakeup() const {
  const agent::TimePoint next = std::min(protocol_.next_wakeup(), link_.next_wakeup());
  return full_ ? std::max(next, ran_at_ + kFullPause) : next;
}

void NodeAgent::act() {
  for (agent::Action& action : protocol_.take_actions()) {
    if (const auto* message = std::get_if<wire::ToDaemon>(&action)) {
      if (!link_.send(*message)) {
        log::warning_limited("twin", "send", "the daemon takes no messages; one is dropped");
      }
    } else if (const auto* reconnect = std::get_if<agent::Reconnect>(&action)) {
      log::warning_limited("twin", "reconnect", protocol_.node() + ": " + reconnect->reason);
      link_.rebuild();
    } else if (const auto* notice = std::get_if<agent::Notice>(&action)) {
      if (notice->warning) {
        // "rank-17" and "rank-18" share a line: a cluster has too many ranks for one each.
        const std::string kind = notice->key.substr(0, notice->key.find('-'));
        log::warning_limited("twin", kind, protocol_.node() + ": " + notice->text);
      }
    } else {
      orders_.push_back(std::move(action));
    }
  }
}

void NodeAgent::flush(agent::TimePoint now) {
  full_ = false;
  while (protocol_.telemetry_due(now)) {
    full_ = !link_.ready();
    auto telemetry = full_ ? std::nullopt : protocol_.next_telemetry(now);
    if (!telemetry) {
      return;
    }
    static_cast<void>(link_.send(wire::ToDaemon{*std::move(telemetry)}));
  }
}

}  // namespace tapas::twin
