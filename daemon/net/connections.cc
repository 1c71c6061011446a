#include "daemon/net/connections.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

namespace tapas::daemon {
namespace {

constexpr const char* kEvents = "inproc://agents-connections";
// An agent says HELLO a second after its handshake, which may take ten.
constexpr std::chrono::seconds kLookInterval{5};
constexpr int kSilentLooks = 4;

}  // namespace

Connections::Connections(zmq::context_t& context, zmq::socket_t& agents)
    : events_(context, zmq::socket_type::pair) {
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // libzmq's own threads would wait for room.
  if (zmq_socket_monitor(agents.handle(), kEvents, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) !=
      0) {
    throw zmq::error_t();
  }
  events_.connect(kEvents);
}

void Connections::cut_off(int descriptor) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
      protocol == IPPROTO_TCP) {
    static_cast<void>(::shutdown(descriptor, SHUT_RDWR));
  }
}

void Connections::follow() {
  zmq::message_t event;
  zmq::message_t address;
  while (events_.recv(event, zmq::recv_flags::dontwait) &&
         events_.recv(address, zmq::recv_flags::dontwait)) {
    std::uint16_t kind = 0;
    std::int32_t descriptor = 0;
    if (event.size() < sizeof kind + sizeof descriptor) {
      continue;
    }
    std::memcpy(&kind, event.data(), sizeof kind);
    std::memcpy(&descriptor, event.data<char>() + sizeof kind, sizeof descriptor);
    forget(descriptor);
    if (kind == ZMQ_EVENT_ACCEPTED) {
      open_.try_emplace(descriptor);
    }
  }
}

void Connections::leave_node(const Connection& connection, int descriptor) {
  const auto siblings = by_node_.find(connection.node);
  if (siblings != by_node_.end() && std::erase(siblings->second, descriptor) != 0 &&
      siblings->second.empty()) {
    by_node_.erase(siblings);
  }
}

void Connections::forget(int descriptor) {
  if (const auto found = open_.find(descriptor); found != open_.end()) {
    leave_node(found->second, descriptor);
    open_.erase(found);
  }
}

bool Connections::spoke(std::string_view node, int descriptor) {
  auto found = open_.find(descriptor);
  if (found == open_.end()) {
    follow();
    found = open_.find(descriptor);
  }
  if (found == open_.end() || found->second.cut || found->second.node == node) {
    return false;
  }
  leave_node(found->second, descriptor);
  found->second.node = node;
  std::vector<int>& siblings = by_node_[found->second.node];
  siblings.push_back(descriptor);
  if (siblings.size() <= kPerNode) {
    return false;
  }
  const int oldest = siblings.front();
  siblings.erase(siblings.begin());
  open_.at(oldest).cut = true;
  cut_off(oldest);
  return true;
}

std::size_t Connections::close_silent(std::chrono::steady_clock::time_point now) {
  if (now - looked_ < kLookInterval) {
    return 0;
  }
  looked_ = now;
  std::size_t closed = 0;
  for (auto& [descriptor, connection] : open_) {
    if (connection.node.empty() && !connection.cut && ++connection.looks > kSilentLooks) {
      connection.cut = true;
      cut_off(descriptor);
      ++closed;
    }
  }
  return closed;
}

}  // namespace tapas::daemon
