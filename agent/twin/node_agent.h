#pragma once

#include "agent/collect/agent_protocol.h"
#include "base/result.h"
#include "wire/message.h"

#include <zmq.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapas::twin {

/// One node's way to the daemon, as a real agent has it.
struct NodeLink {
  std::string node;
  std::string endpoint;
  std::string server_key;  ///< Z85, public
  std::string secret_key;  ///< Z85
};

/// An emulated agent: the real protocol over a CURVE DEALER of its own, on a context shared by all
/// (agent::DaemonLink has a context and threads per connection, too many for a cluster). Its owner
/// carries the ranks' orders, answers and records. Not thread-safe.
class NodeAgent {
 public:
  /// `context` must outlive this. Begins to connect; the daemon may come up later.
  [[nodiscard]] static Result<std::unique_ptr<NodeAgent>> start(zmq::context_t& context,
                                                                const NodeLink& link,
                                                                std::uint64_t nonce);

  /// Reads what has come, and does what is due. Orders for the ranks and the plans they need come
  /// out of take_orders(), in order.
  void run(agent::TimePoint now);
  [[nodiscard]] std::vector<agent::Action> take_orders() { return std::exchange(orders_, {}); }

  [[nodiscard]] agent::AgentProtocol& protocol() { return protocol_; }
  [[nodiscard]] const agent::AgentProtocol& protocol() const { return protocol_; }
  /// What to wait on for input: the connection and its state.
  [[nodiscard]] std::array<void*, 2> handles() { return {socket_.handle(), monitor_.handle()}; }
  /// The daemon turned the key down.
  [[nodiscard]] bool refused() const { return refused_; }

 private:
  NodeAgent(zmq::context_t& context, NodeLink link, std::uint64_t nonce);

  [[nodiscard]] Result<void> connect();
  void watch(agent::TimePoint now);
  void receive(agent::TimePoint now);
  void act();
  [[nodiscard]] bool send(const wire::ToDaemon& message);
  void flush(agent::TimePoint now);

  zmq::context_t& context_;
  const NodeLink link_;
  const std::uint64_t nonce_;
  agent::AgentProtocol protocol_;
  zmq::socket_t socket_;
  zmq::socket_t monitor_;
  std::uint64_t connections_ = 0;
  std::uint64_t sequence_ = 0;
  bool up_ = false;
  bool refused_ = false;
  std::vector<agent::Action> orders_;
};

}  // namespace tapas::twin
