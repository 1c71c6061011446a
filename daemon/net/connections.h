#pragma once

#include <zmq.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tapas::daemon {

/// The TCP connections of the agents' socket, so that no node holds many open. libzmq's monitor
/// tells which there are, and only a message tells whose one is: until then a connection is silent,
/// and may be so for a while only. Net thread. The file is private to daemon/net.
///
/// A descriptor may be another connection's a moment after it was asked about: closing it then
/// costs that one a reconnection.
class Connections {
 public:
  /// An agent has one, and some that its network lost and TCP does not know of yet.
  static constexpr std::size_t kPerNode = 8;

  /// Watches `agents`; must come before its bind(). Throws zmq::error_t.
  Connections(zmq::context_t& context, zmq::socket_t& agents);

  /// Readable when connections came or went: call follow() then.
  [[nodiscard]] zmq::socket_t& socket() { return events_; }
  void follow();
  /// A message of `node` came over the connection. True when the node has one too many now: its
  /// oldest is closed.
  bool spoke(std::string_view node, int descriptor);
  /// Looks every few seconds, and closes those that were as silent at the last looks; returns how
  /// many. Call it while messages are read. Ages count in looks, so that nobody pays for a daemon
  /// that stood still.
  std::size_t close_silent(std::chrono::steady_clock::time_point now);
  void close() { events_.close(); }

  /// For which libzmq has no call. What is no TCP connection is left alone.
  static void cut_off(int descriptor);

 private:
  struct Connection {
    std::string node;  ///< empty = silent
    int looks = 0;
    bool cut = false;
  };
  void forget(int descriptor);
  void leave_node(const Connection& connection, int descriptor);

  zmq::socket_t events_;
  std::chrono::steady_clock::time_point looked_;
  std::unordered_map<int, Connection> open_;                      // by descriptor
  std::map<std::string, std::vector<int>, std::less<>> by_node_;  // oldest first
};

}  // namespace tapas::daemon
