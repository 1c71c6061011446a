#pragma once

#include "agent/collect/agent_protocol.h"
#include "agent/collect/daemon_link.h"
#include "base/result.h"

#include <memory>
#include <utility>
#include <vector>

namespace tapas::twin {

/// An emulated agent: the real protocol over a real link of its own. Its owner carries the ranks'
/// orders, answers and records. Not thread-safe.
class NodeAgent {
 public:
  /// Begins to connect; the daemon may come up later.
  [[nodiscard]] static Result<std::unique_ptr<NodeAgent>> start(agent::DaemonLink::Options options);

  /// Reads what has come, and does what is due. Orders for the ranks and the plans they need come
  /// out of take_orders(), in order.
  void run(agent::TimePoint now);
  [[nodiscard]] std::vector<agent::Action> take_orders() { return std::exchange(orders_, {}); }
  /// When run() has something to do even if nothing comes.
  [[nodiscard]] agent::TimePoint next_wakeup() const;

  [[nodiscard]] agent::AgentProtocol& protocol() { return protocol_; }
  [[nodiscard]] const agent::AgentProtocol& protocol() const { return protocol_; }
  [[nodiscard]] const agent::DaemonLink& link() const { return link_; }

 private:
  NodeAgent(const agent::DaemonLink::Options& options, agent::DaemonLink link);

  /// False when nothing came.
  bool receive(agent::TimePoint now);
  void act();
  void flush(agent::TimePoint now);

  agent::AgentProtocol protocol_;
  agent::DaemonLink link_;
  bool full_ = false;  ///< records are due, but the link does not take them
  agent::TimePoint ran_at_;
  std::vector<agent::Action> orders_;
};

}  // namespace tapas::twin
