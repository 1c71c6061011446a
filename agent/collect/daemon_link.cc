#include "agent/collect/daemon_link.h"

#include "base/log/log.h"
#include "wire/message_codec.h"

#include <fmt/format.h>
#include <zmq.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace tapas::agent {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kModule = "link";
constexpr int kConnectMs = 10'000;
constexpr int kHandshakeMs = 10'000;
/// Whatever libzmq does not tell us about: then it is tried anew.
constexpr std::chrono::seconds kConnectPatience{30};
constexpr double kLeastSpreadS = 1.0;
constexpr double kMostSpreadS = 120.0;
/// The kernel clears dead connections; liveness is judged by the protocol's own heartbeats.
constexpr int kKeepaliveS = 10;
constexpr int kUnansweredMs = 20'000;
/// Messages. Records wait in the agent's own queue, which counts what it drops.
constexpr int kSendHighWater = 100;
/// Votes and heartbeats that wait behind records for a moment.
constexpr std::size_t kMaxWaiting = 64;
constexpr std::chrono::seconds kRetryRefused{30};
constexpr std::size_t kMaxRoutingNode = 200;  // A routing id has 255 bytes.
constexpr int kMaxMessagesPerPoll = 256;
/// Sockets of a link: the connection, and both ends of its events; twice, as closed ones stay for a
/// moment.
constexpr int kSocketsPerLink = 6;

constexpr int kMonitored = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                           ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED |
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

std::span<const std::byte> bytes_of(const zmq::message_t& part) {
  return {static_cast<const std::byte*>(part.data()), part.size()};
}

/// From 0 to 1, another one for each try of each agent.
double fraction(std::uint64_t nonce, std::uint64_t tries) {
  std::uint64_t x = nonce + tries * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((x ^ (x >> 31U)) >> 11U) * 0x1p-53;
}

}  // namespace

struct LinkContext::Impl {
  zmq::context_t context{1};
};

LinkContext::LinkContext(std::size_t links) : impl_(std::make_unique<Impl>()) {
  impl_->context.set(zmq::ctxopt::max_sockets, static_cast<int>(links) * kSocketsPerLink + 16);
}
LinkContext::~LinkContext() = default;

struct DaemonLink::Impl {
  explicit Impl(Options wanted)
      : options(std::move(wanted)), context(options.context->impl_->context) {}

  void connect();
  void close();
  void retry(Clock::duration pause);
  [[nodiscard]] Clock::duration pause() const;
  [[nodiscard]] bool writable();
  bool put(const wire::Frames& frames);
  void send_waiting();
  void watch(Incoming& incoming);
  void receive(Incoming& incoming);

  const Options options;
  std::array<char, 41> public_key = {};
  zmq::context_t& context;
  zmq::socket_t socket;
  zmq::socket_t monitor;
  std::uint64_t generation = 0;  ///< of the socket
  std::uint64_t sequence = 0;
  double spread_s = kLeastSpreadS;
  bool up = false;
  bool reached = false;  ///< there is somebody, who has not let us in yet
  bool refused = false;
  unsigned unfinished = 0;     ///< handshakes in a row that came to nothing
  Clock::time_point retry_at;  ///< while not up
  std::deque<wire::Frames> waiting;
};

void DaemonLink::Impl::close() {
  monitor.close();
  socket.close();
  up = false;
  reached = false;
  waiting.clear();
}

/// A daemon that does not get through its handshakes gets fewer of them; one that is away is asked
/// as often as ever.
Clock::duration DaemonLink::Impl::pause() const {
  const double longest_s =
      std::min(kMostSpreadS, std::ldexp(spread_s, static_cast<int>(unfinished)));
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(longest_s * fraction(options.nonce, generation)));
}

void DaemonLink::Impl::retry(Clock::duration pause) {
  close();
  retry_at = Clock::now() + pause;
}

/// May throw zmq::error_t.
void DaemonLink::Impl::connect() {
  close();
  retry_at = Clock::now() + kConnectPatience;
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
  socket.set(zmq::sockopt::reconnect_ivl, -1);  // Its pauses hardly differ between agents.
  socket.set(zmq::sockopt::connect_timeout, kConnectMs);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, kKeepaliveS);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, kKeepaliveS);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 3);
  socket.set(zmq::sockopt::tcp_maxrt, kUnansweredMs);
  socket.set(zmq::sockopt::curve_serverkey, options.daemon_key);
  socket.set(zmq::sockopt::curve_publickey, std::string(public_key.data()));
  socket.set(zmq::sockopt::curve_secretkey, options.secret_key);

  const std::string events =
      fmt::format("inproc://daemon-link-{}-{:016x}-{}", options.node, options.nonce, generation);
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
  while (monitor && monitor.recv(event, zmq::recv_flags::dontwait) &&
         monitor.recv(address, zmq::recv_flags::dontwait)) {
    std::uint16_t id = 0;
    if (event.size() < sizeof(id)) {
      continue;
    }
    std::memcpy(&id, event.data(), sizeof(id));
    switch (id) {
      case ZMQ_EVENT_CONNECTED:
        reached = true;
        break;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        up = true;
        refused = false;
        unfinished = 0;
        incoming.connected = true;
        break;
      case ZMQ_EVENT_CLOSED:
      case ZMQ_EVENT_DISCONNECTED:
        incoming.lost = incoming.lost || up;
        incoming.connected = false;
        unfinished = reached && !up ? std::min(unfinished + 1, 8U) : unfinished;
        retry(refused ? kRetryRefused : pause());
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        refused = true;  // It never lets the key in; the operator may allow it later.
        [[fallthrough]];
      default:
        log::warning_limited(
            kModule, "handshake",
            fmt::format("{} refuses the connection: check that its key is daemon_public_key and "
                        "that it knows this node's key",
                        options.endpoint));
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
      if (!socket || !socket.recv(part, flags)) {
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
  try {
    impl->connect();
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kUnavailable, "connecting to {}: {}", impl->options.endpoint,
                error.what());
  }
  return DaemonLink(std::move(impl));
}

void DaemonLink::rebuild() { impl_->retry(impl_->pause()); }

void DaemonLink::set_spread(double seconds) {
  impl_->spread_s = std::clamp(seconds, kLeastSpreadS, kMostSpreadS);
}

DaemonLink::Incoming DaemonLink::poll(std::chrono::milliseconds wait) {
  Incoming incoming;
  try {
    if (!impl_->up && Clock::now() >= impl_->retry_at) {
      impl_->connect();
    }
    if (!impl_->socket) {
      std::this_thread::sleep_for(wait);
      return incoming;
    }
    if (wait > wait.zero()) {
      std::array<zmq::pollitem_t, 2> items = {{
          {impl_->monitor.handle(), 0, ZMQ_POLLIN, 0},
          {impl_->socket.handle(), 0, ZMQ_POLLIN, 0},
      }};
      zmq::poll(items.data(), items.size(), wait);
    }
    impl_->watch(incoming);
    impl_->receive(incoming);
    impl_->send_waiting();
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) {
      log::warning_limited(kModule, "poll", fmt::format("connection: {}", error.what()));
      incoming.lost = impl_->up;
      incoming.connected = false;
      impl_->retry(impl_->pause());
    }
  }
  return incoming;
}

bool DaemonLink::Impl::writable() {
  return up && (socket.get(zmq::sockopt::events) & ZMQ_POLLOUT) != 0;
}

/// False when the connection is full. Once it took the first frame it takes the second.
bool DaemonLink::Impl::put(const wire::Frames& frames) {
  return socket.send(zmq::buffer(frames.header),
                     zmq::send_flags::dontwait | zmq::send_flags::sndmore) &&
         socket.send(zmq::buffer(frames.payload), zmq::send_flags::dontwait);
}

void DaemonLink::Impl::send_waiting() {
  while (!waiting.empty() && up && put(waiting.front())) {
    waiting.pop_front();
  }
}

bool DaemonLink::ready() const {
  try {
    return impl_->waiting.empty() && impl_->writable();
  } catch (const zmq::error_t&) {
    return false;
  }
}

bool DaemonLink::send(const wire::ToDaemon& message) {
  if (!impl_->up) {
    return false;
  }
  try {
    wire::Frames frames = wire::encode(message, impl_->sequence + 1);
    if (!impl_->waiting.empty() || !impl_->put(frames)) {
      if (impl_->waiting.size() >= kMaxWaiting) {
        return false;
      }
      impl_->waiting.push_back(std::move(frames));
    }
    ++impl_->sequence;
    return true;
  } catch (const zmq::error_t& error) {
    log::warning_limited(kModule, "send", fmt::format("sending: {}", error.what()));
    return false;
  }
}

std::array<int, 2> DaemonLink::descriptors() const {
  if (!impl_->socket) {
    return {-1, -1};
  }
  return {impl_->socket.get(zmq::sockopt::fd), impl_->monitor.get(zmq::sockopt::fd)};
}

std::uint64_t DaemonLink::rebuilds() const { return impl_->generation; }
bool DaemonLink::refused() const { return impl_->refused; }
bool DaemonLink::kept_out() const {
  return !impl_->up && (impl_->refused || impl_->reached || impl_->unfinished > 0);
}

Clock::time_point DaemonLink::next_wakeup() const {
  return impl_->up ? Clock::time_point::max() : impl_->retry_at;
}

}  // namespace tapas::agent
