#include "agent/twin/node_agent.h"

#include "base/log/log.h"
#include "wire/message_codec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

namespace tapas::twin {

namespace {

// A thousand nodes share one process: a node keeps what a real agent's ring holds for a while.
constexpr std::size_t kMaxQueuedRecords = 4096;
constexpr int kReconnectMs = 200;
constexpr int kReconnectMaxMs = 2000;
constexpr int kMonitored = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

agent::AgentProtocol::Options options_of(const NodeLink& link, std::uint64_t nonce) {
  agent::AgentProtocol::Options options;
  options.node = link.node;
  options.nonce = nonce;
  options.max_queued_records = kMaxQueuedRecords;
  return options;
}

Result<std::string> public_key_of(const NodeLink& link) {
  std::array<char, 41> key = {};
  if (link.secret_key.size() != 40 || zmq_curve_public(key.data(), link.secret_key.c_str()) != 0) {
    return fail(ErrorCode::kInvalid,
                "the key of node {} is no CURVE key; make one with `tapasctl key new`", link.node);
  }
  return std::string(key.data());
}

}  // namespace

NodeAgent::NodeAgent(zmq::context_t& context, NodeLink link, std::uint64_t nonce)
    : context_(context),
      link_(std::move(link)),
      nonce_(nonce),
      protocol_(options_of(link_, nonce)) {}

Result<std::unique_ptr<NodeAgent>> NodeAgent::start(zmq::context_t& context, const NodeLink& link,
                                                    std::uint64_t nonce) {
  std::unique_ptr<NodeAgent> agent(new NodeAgent(context, link, nonce));
  if (auto ok = agent->connect(); !ok) {
    return tl::unexpected<Error>(ok.error());
  }
  return agent;
}

Result<void> NodeAgent::connect() {
  const auto public_key = public_key_of(link_);
  if (!public_key) {
    return tl::unexpected<Error>(public_key.error());
  }
  up_ = false;
  sequence_ = 0;
  const std::string name = fmt::format("{}.{:016x}.{}", link_.node, nonce_, ++connections_);
  const std::string events = "inproc://twin-" + name;
  try {
    monitor_.close();
    socket_.close();
    socket_ = zmq::socket_t(context_, zmq::socket_type::dealer);
    socket_.set(zmq::sockopt::routing_id, name);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::immediate, true);
    socket_.set(zmq::sockopt::maxmsgsize, std::int64_t{wire::kMaxPayloadBytes});
    socket_.set(zmq::sockopt::reconnect_ivl, kReconnectMs);
    socket_.set(zmq::sockopt::reconnect_ivl_max, kReconnectMaxMs);
    socket_.set(zmq::sockopt::curve_serverkey, link_.server_key);
    socket_.set(zmq::sockopt::curve_publickey, *public_key);
    socket_.set(zmq::sockopt::curve_secretkey, link_.secret_key);
    if (zmq_socket_monitor(socket_.handle(), events.c_str(), kMonitored) != 0) {
      throw zmq::error_t();
    }
    monitor_ = zmq::socket_t(context_, zmq::socket_type::pair);
    monitor_.set(zmq::sockopt::linger, 0);
    monitor_.connect(events);
    socket_.connect(link_.endpoint);
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kUnavailable, "node {} cannot connect to {}: {}", link_.node,
                link_.endpoint, error.what());
  }
  return {};
}

void NodeAgent::run(agent::TimePoint now) {
  try {
    watch(now);
    receive(now);
  } catch (const zmq::error_t& error) {
    log::warning_limited("twin", "socket", link_.node + ": " + error.what());
  }
  protocol_.tick(now);
  act();
  flush(now);
}

void NodeAgent::watch(agent::TimePoint now) {
  zmq::message_t event;
  zmq::message_t address;
  while (monitor_.recv(event, zmq::recv_flags::dontwait) &&
         monitor_.recv(address, zmq::recv_flags::dontwait)) {
    std::uint16_t id = 0;
    if (event.size() < sizeof(id)) {
      continue;
    }
    std::memcpy(&id, event.data(), sizeof(id));
    if (id == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      up_ = true;
      refused_ = false;
      protocol_.connected(now);
    } else if (id == ZMQ_EVENT_DISCONNECTED) {
      if (std::exchange(up_, false)) {
        protocol_.disconnected(now);
      }
    } else {
      refused_ = true;
      log::warning_limited("twin", "handshake",
                           fmt::format("{} turns node {} down: check --server-key, and that the "
                                       "daemon knows the node's key",
                                       link_.endpoint, link_.node));
    }
  }
}

void NodeAgent::receive(agent::TimePoint now) {
  // Bounded, so that one chatty peer cannot starve the others of the thread.
  for (int messages = 0; messages < 64; ++messages) {
    std::vector<zmq::message_t> frames;
    bool more = true;
    while (more) {
      zmq::message_t frame;
      if (!socket_.recv(frame, zmq::recv_flags::dontwait)) {
        return;
      }
      more = frame.more();
      frames.push_back(std::move(frame));
    }
    std::vector<std::span<const std::byte>> views;
    views.reserve(frames.size());
    for (const zmq::message_t& frame : frames) {
      views.emplace_back(frame.data<std::byte>(), frame.size());
    }
    const auto message = wire::decode_to_agent(views);
    if (!message) {
      log::warning_limited("twin", "decode", message.error().message);
      continue;
    }
    protocol_.received(*message, now);
    act();
  }
}

void NodeAgent::act() {
  for (agent::Action& action : protocol_.take_actions()) {
    if (const auto* message = std::get_if<wire::ToDaemon>(&action)) {
      if (!send(*message)) {
        log::warning_limited("twin", "send", "the daemon takes no messages; one is dropped");
      }
    } else if (const auto* reconnect = std::get_if<agent::Reconnect>(&action)) {
      log::warning_limited("twin", "reconnect", link_.node + ": " + reconnect->reason);
      if (auto ok = connect(); !ok) {
        log::warning_limited("twin", "connect", ok.error().message);
      }
    } else if (const auto* notice = std::get_if<agent::Notice>(&action)) {
      if (notice->warning) {
        // "rank-17" and "rank-18" share a line: a cluster has too many ranks for one each.
        const std::string kind = notice->key.substr(0, notice->key.find('-'));
        log::warning_limited("twin", kind, link_.node + ": " + notice->text);
      }
    } else {
      orders_.push_back(std::move(action));
    }
  }
}

void NodeAgent::flush(agent::TimePoint now) {
  const auto writable = [this] {
    return up_ && (socket_.get(zmq::sockopt::events) & ZMQ_POLLOUT) != 0;
  };
  while (writable()) {
    const auto telemetry = protocol_.next_telemetry(now);
    if (!telemetry || !send(wire::ToDaemon{*telemetry})) {
      return;
    }
  }
}

bool NodeAgent::send(const wire::ToDaemon& message) {
  if (!up_) {
    return false;
  }
  const wire::Frames frames = wire::encode(message, ++sequence_);
  try {
    return socket_.send(zmq::buffer(frames.header),
                        zmq::send_flags::sndmore | zmq::send_flags::dontwait) &&
           socket_.send(zmq::buffer(frames.payload), zmq::send_flags::dontwait);
  } catch (const zmq::error_t& error) {
    log::warning_limited("twin", "socket", link_.node + ": " + error.what());
    return false;
  }
}

}  // namespace tapas::twin
