#include "agent/collect/daemon_link.h"

#include "base/log/log.h"
#include "wire/message_codec.h"

#include <fmt/format.h>
#include <zmq.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace tapas::agent {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kModule = "link";
/// Reconnection is spread over the second after an outage and backs off, so that a fleet does not
/// come back in one moment.
constexpr int kReconnectMs = 1000;
constexpr int kReconnectMaxMs = 30'000;
constexpr int kHandshakeMs = 5000;
/// ZMTP heartbeats clear dead TCP connections; liveness is judged by the protocol's own.
constexpr int kTransportHeartbeatMs = 5000;
constexpr int kSendHighWater = 1000;
/// libzmq never retries a key that was turned down for good; the operator may allow it later.
constexpr std::chrono::seconds kRetryRefused{30};
constexpr std::size_t kMaxRoutingNode = 200;  // A routing id has 255 bytes.
constexpr int kMaxMessagesPerPoll = 256;

constexpr int kMonitored = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

std::span<const std::byte> bytes_of(const zmq::message_t& part) {
  return {static_cast<const std::byte*>(part.data()), part.size()};
}

}  // namespace

struct DaemonLink::Impl {
  explicit Impl(Options wanted) : options(std::move(wanted)) {}

  void connect();
  void watch(Incoming& incoming);
  void receive(Incoming& incoming);

  const Options options;
  std::array<char, 41> public_key = {};
  zmq::context_t context{1};
  zmq::socket_t socket;
  zmq::socket_t monitor;
  std::uint64_t generation = 0;  ///< of the socket
  std::uint64_t sequence = 0;
  bool up = false;
  std::optional<Clock::time_point> retry_at;
};

/// May throw zmq::error_t.
void DaemonLink::Impl::connect() {
  monitor.close();
  socket.close();
  up = false;
  retry_at.reset();
  ++generation;
  sequence = 0;
  socket = zmq::socket_t(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::routing_id,
             fmt::format("{}.{:016x}.{}", options.node.substr(0, kMaxRoutingNode), options.nonce,
                         generation));
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::immediate, true);
  socket.set(zmq::sockopt::ipv6, true);
  socket.set(zmq::sockopt::sndhwm, kSendHighWater);
  socket.set(zmq::sockopt::maxmsgsize, std::int64_t{wire::kMaxPayloadBytes});
  socket.set(zmq::sockopt::reconnect_ivl, kReconnectMs);
  socket.set(zmq::sockopt::reconnect_ivl_max, kReconnectMaxMs);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::heartbeat_ivl, kTransportHeartbeatMs);
  socket.set(zmq::sockopt::heartbeat_timeout, 3 * kTransportHeartbeatMs);
  socket.set(zmq::sockopt::curve_serverkey, options.daemon_key);
  socket.set(zmq::sockopt::curve_publickey, std::string(public_key.data()));
  socket.set(zmq::sockopt::curve_secretkey, options.secret_key);

  const std::string events = fmt::format("inproc://daemon-link-{}", generation);
  if (zmq_socket_monitor(socket.handle(), events.c_str(), kMonitored) != 0) {
    throw zmq::error_t();
  }
  monitor = zmq::socket_t(context, zmq::socket_type::pair);
  monitor.set(zmq::sockopt::linger, 0);
  monitor.connect(events);
  socket.connect(options.endpoint);
}

void DaemonLink::Impl::watch(Incoming& incoming) {
  zmq::message_t event;
  zmq::message_t address;
  while (monitor.recv(event, zmq::recv_flags::dontwait) &&
         monitor.recv(address, zmq::recv_flags::dontwait)) {
    std::uint16_t id = 0;
    if (event.size() < sizeof(id)) {
      continue;
    }
    std::memcpy(&id, event.data(), sizeof(id));
    switch (id) {
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        up = true;
        retry_at.reset();
        incoming.connected = true;
        break;
      case ZMQ_EVENT_DISCONNECTED:
        incoming.lost = incoming.lost || up;
        up = false;
        incoming.connected = false;
        break;
      default:
        log::warning_limited(
            kModule, "handshake",
            fmt::format("{} refuses the connection: check that its key is daemon_public_key and "
                        "that it knows this node's key",
                        options.endpoint));
        if (!retry_at) {
          retry_at = Clock::now() + kRetryRefused;
        }
        break;
    }
  }
}

void DaemonLink::Impl::receive(Incoming& incoming) {
  for (int messages = 0; messages < kMaxMessagesPerPoll; ++messages) {
    std::array<zmq::message_t, wire::kMaxFrames> parts;
    std::array<std::span<const std::byte>, wire::kMaxFrames> frames;
    std::size_t count = 0;
    bool more = true;
    while (more) {
      zmq::message_t surplus;
      zmq::message_t& part = count < parts.size() ? parts[count] : surplus;
      const auto flags = count == 0 ? zmq::recv_flags::dontwait : zmq::recv_flags::none;
      if (!socket.recv(part, flags)) {
        return;
      }
      more = part.more();
      if (count < parts.size()) {
        frames[count] = bytes_of(part);
      }
      ++count;
    }
    const std::size_t kept = std::min(count, parts.size());
    auto message = count > parts.size()
                       ? fail(ErrorCode::kInvalid, "message of {} frames; at most {} are allowed",
                              count, parts.size())
                       : wire::decode_to_agent(std::span(frames).first(kept));
    if (!message) {
      log::warning_limited(
          kModule, "malformed",
          fmt::format("message from {} left out: {}", options.endpoint, message.error().message));
      continue;
    }
    incoming.messages.push_back(*std::move(message));
  }
}

DaemonLink::DaemonLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DaemonLink::DaemonLink(DaemonLink&&) noexcept = default;
DaemonLink& DaemonLink::operator=(DaemonLink&&) noexcept = default;
DaemonLink::~DaemonLink() = default;

Result<DaemonLink> DaemonLink::open(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (zmq_curve_public(impl->public_key.data(), impl->options.secret_key.c_str()) != 0) {
    return fail(ErrorCode::kInvalid, "the secret key is no CURVE key: {}", zmq_strerror(errno));
  }
  DaemonLink link(std::move(impl));
  if (auto ok = link.rebuild(); !ok) {
    return tl::unexpected(ok.error());
  }
  return link;
}

Result<void> DaemonLink::rebuild() {
  try {
    impl_->connect();
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kUnavailable, "connecting to {}: {}", impl_->options.endpoint,
                error.what());
  }
  return {};
}

bool DaemonLink::connected() const { return impl_->up; }

DaemonLink::Incoming DaemonLink::poll(std::chrono::milliseconds wait) {
  Incoming incoming;
  try {
    if (impl_->retry_at && Clock::now() >= *impl_->retry_at) {
      impl_->connect();
    }
    std::array<zmq::pollitem_t, 2> items = {{
        {impl_->monitor.handle(), 0, ZMQ_POLLIN, 0},
        {impl_->socket.handle(), 0, ZMQ_POLLIN, 0},
    }};
    zmq::poll(items.data(), items.size(), wait);
    impl_->watch(incoming);
    impl_->receive(incoming);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) {
      log::warning_limited(kModule, "poll", fmt::format("polling: {}", error.what()));
    }
  }
  return incoming;
}

bool DaemonLink::send(const wire::ToDaemon& message) {
  if (!impl_->up) {
    return false;
  }
  try {
    const wire::Frames frames = wire::encode(message, impl_->sequence + 1);
    const auto header_flags = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
    if (!impl_->socket.send(zmq::buffer(frames.header), header_flags)) {
      return false;
    }
    ++impl_->sequence;
    return impl_->socket.send(zmq::buffer(frames.payload), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t& error) {
    log::warning_limited(kModule, "send", fmt::format("sending: {}", error.what()));
    return false;
  }
}

}  // namespace tapas::agent
