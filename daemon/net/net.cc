#include "daemon/net/net.h"

#include "base/log/log.h"
#include "base/queue.h"
#include "daemon/net/connections.h"
#include "daemon/net/inbound.h"
#include "daemon/net/outbound.h"
#include "daemon/net/pacing.h"
#include "daemon/net/quota.h"
#include "daemon/net/zap.h"
#include "wire/message_codec.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr std::string_view kLog = "net";
// A batch is short work for the core, so that nothing waits long behind records.
constexpr std::size_t kBatchMessages = 256;
constexpr std::size_t kBatchRecords = 1024;
constexpr int kMaxBatchesInCore = 4;
/// Handshakes are spread over the threads; everything else is little.
constexpr int kIoThreads = 2;
constexpr std::size_t kOutgoing = 1U << 16U;
// Per frame. Above the largest legal frame, so that a frame somewhat too large is refused with a
// reason; libzmq cuts the connection of a peer that goes beyond.
constexpr std::int64_t kMaxFrameBytes = 128 << 10;
constexpr double kHelloRetryS = 0.5;
using Clock = std::chrono::steady_clock;

/// What the daemon knows of a connected agent.
struct Peer {
  std::string routing_id;
  int descriptor = -1;
  std::uint64_t sequence = 0;
};

struct Incoming {
  std::string routing_id;
  std::string user;  // node that the key belongs to
  std::string address;
  int descriptor = -1;
  std::vector<zmq::message_t> frames;  // at most one more than allowed
};

std::string property(const zmq::message_t& message, const char* name) {
  // The method of zmq::message_t throws when the property is missing.
  const char* value = zmq_msg_gets(const_cast<zmq_msg_t*>(message.handle()), name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

struct Net::Impl {
  Impl(const NetOptions& options, AllowList allowed, JobMap jobs, RejectCounter& reject_counter)
      : rejects(reject_counter),
        agents(std::move(allowed)),
        context(kIoThreads),
        zap(context, options.agent_keys, reject_counter),
        router(context, zmq::socket_type::router),
        connections(context, router),
        outbound(std::move(jobs)) {
    outbound.spread_reconnects(reconnect_spread_s(agents.size()));
  }
  ~Impl() {
    stop();
    if (wake >= 0) {
      ::close(wake);
    }
  }

  void bind(const NetOptions& options);
  void stop();
  void run();
  void poll_once();
  void send_queued();
  void send(const SendToAgent& message);
  void follow_list();
  bool send_frames(const std::string& node, const std::string& routing_id,
                   const wire::Frames& frames);
  void read_batch();
  bool receive(Incoming& out);
  std::size_t handle(const Incoming& message, std::vector<Event>& events);
  void ask_for_hello(const std::string& node, const std::string& routing_id);
  void reject(const Incoming& message, std::string_view reason, std::string_view sentence);
  bool within_quota(const Incoming& message);
  void ring() const {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake, &one, sizeof one));
  }

  RejectCounter& rejects;
  std::mutex agents_mutex;  // held for a look-up only
  AllowList agents;
  // One context per process: several may crash on close before libzmq 4.3.5.
  zmq::context_t context;
  ZapHandler zap;
  zmq::socket_t router;
  Connections connections;
  std::string endpoint;
  int wake = -1;
  Outbound outbound;
  struct Outgoing {
    SendToAgent message;
    std::optional<TimePoint> cause;
  };
  BoundedQueue<Outgoing, WhenFull::kRefuse> outgoing{kOutgoing};
  RecentTimes reaction;
  std::atomic<bool> list_changed{false};
  Deliver deliver;
  std::atomic<int> batches_in_core{0};
  std::atomic<bool> stopping{false};
  std::atomic<std::uint64_t> beats{0};
  std::atomic<std::uint64_t> steps{0};
  std::atomic<std::uint64_t> links{0};
  std::atomic<std::uint64_t> health{0};
  std::map<std::string, Peer, std::less<>> peers;               // by node, said HELLO
  std::map<std::string, Clock::time_point, std::less<>> asked;  // by node, when told to say HELLO
  mutable std::mutex quota_mutex;                               // held for a look-up only
  std::map<std::string, Quota, std::less<>> quotas;             // by node
  std::thread thread;
};

Net::Net(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Net::~Net() = default;

Result<std::unique_ptr<Net>> Net::open(const NetOptions& options, AllowList agents, JobMap jobs,
                                       RejectCounter& rejects) {
  try {
    auto impl = std::make_unique<Impl>(options, std::move(agents), std::move(jobs), rejects);
    impl->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (impl->wake < 0) {
      return fail(ErrorCode::kIo, "no eventfd: raise the limit on open files (LimitNOFILE)");
    }
    impl->zap.bind();
    impl->bind(options);
    return std::unique_ptr<Net>(new Net(std::move(impl)));
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kIo,
                "cannot listen on {}: {}; is another daemon there, and is the address one of this "
                "host?",
                options.listen, error.what());
  }
}

void Net::Impl::bind(const NetOptions& options) {
  router.set(zmq::sockopt::linger, 1000);
  router.set(zmq::sockopt::curve_server, true);
  router.set(zmq::sockopt::curve_secretkey, options.secret_key);
  router.set(zmq::sockopt::zap_domain, "tapas.agents");
  // An agent that is away is an error, not silence. Each of its sockets has a routing id of its
  // own, so that nobody may take over one that is in use (no router_handover).
  router.set(zmq::sockopt::router_mandatory, true);
  router.set(zmq::sockopt::maxmsgsize, kMaxFrameBytes);
  router.set(zmq::sockopt::rcvhwm, 1000);
  // The largest plan's pieces and then some.
  router.set(zmq::sockopt::sndhwm, static_cast<int>(2 * wire::kMaxPlanChunks));
  router.set(zmq::sockopt::handshake_ivl, 10'000);
  router.set(zmq::sockopt::backlog, 4096);
  // The kernel clears dead connections. ZMTP's own heartbeats would do, but libzmq looks through
  // the timers of all connections for each of them.
  router.set(zmq::sockopt::tcp_keepalive, 1);
  router.set(zmq::sockopt::tcp_keepalive_idle, 10);
  router.set(zmq::sockopt::tcp_keepalive_intvl, 5);
  router.set(zmq::sockopt::tcp_keepalive_cnt, 3);
  router.set(zmq::sockopt::tcp_maxrt, 20'000);
  router.set(zmq::sockopt::ipv6, options.listen.find('[') != std::string::npos);
  router.bind(options.listen);
  endpoint = router.get(zmq::sockopt::last_endpoint);
}

void Net::start(Deliver deliver) {
  impl_->deliver = std::move(deliver);
  impl_->thread = std::thread([this] { impl_->run(); });
}

void Net::stop() { impl_->stop(); }

void Net::Impl::stop() {
  stopping = true;
  if (thread.joinable()) {
    ring();
    thread.join();
  }
}

void Net::send(SendToAgent message, std::optional<TimePoint> cause) {
  if (!impl_->outgoing.push({std::move(message), cause})) {
    impl_->rejects.add("outgoing_full");
    log::warning_limited(kLog, "outgoing", "messages to agents were dropped: the queue is full");
    return;
  }
  impl_->ring();
}

void Net::batch_done() {
  if (impl_->batches_in_core.fetch_sub(1) == kMaxBatchesInCore) {
    impl_->ring();
  }
}

void Net::set_agents(AllowList agents) {
  const std::lock_guard lock(impl_->agents_mutex);
  impl_->agents = std::move(agents);
  impl_->list_changed = true;
  impl_->ring();
}

const std::string& Net::endpoint() const { return impl_->endpoint; }
std::uint64_t Net::beats() const { return impl_->beats.load(std::memory_order_relaxed); }
std::map<std::string, std::uint64_t> Net::received() const {
  return {{"step", impl_->steps}, {"link", impl_->links}, {"health", impl_->health}};
}

std::map<std::string, std::uint64_t> Net::over_limit() const {
  const std::lock_guard lock(impl_->quota_mutex);
  std::map<std::string, std::uint64_t> dropped;
  for (const auto& [node, quota] : impl_->quotas) {
    if (quota.dropped() > 0) {
      dropped[node] = quota.dropped();
    }
  }
  return dropped;
}
RecentTimes::Summary Net::reaction() const { return impl_->reaction.summary(Clock::now()); }

void Net::Impl::run() {
  while (!stopping) {
    beats.fetch_add(1, std::memory_order_relaxed);
    try {
      poll_once();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) {
        log::warning_limited(kLog, "zmq", fmt::format("ZeroMQ says: {}", error.what()));
      }
    }
  }
  try {
    send_queued();
  } catch (const zmq::error_t& error) {
    log::warning(kLog, fmt::format("last messages not sent: {}", error.what()));
  }
  connections.close();
  router.close();
  zap.close();
}

void Net::Impl::poll_once() {
  const bool reading = batches_in_core < kMaxBatchesInCore;
  std::array<zmq::pollitem_t, 4> items = {{{zap.socket().handle(), 0, ZMQ_POLLIN, 0},
                                           {nullptr, wake, ZMQ_POLLIN, 0},
                                           {connections.socket().handle(), 0, ZMQ_POLLIN, 0},
                                           {router.handle(), 0, ZMQ_POLLIN, 0}}};
  zmq::poll(items.data(), reading ? 4 : 3, std::chrono::milliseconds(500));
  if ((items[0].revents & ZMQ_POLLIN) != 0) {
    const std::lock_guard lock(agents_mutex);
    zap.answer(agents);
  }
  if ((items[1].revents & ZMQ_POLLIN) != 0) {
    std::uint64_t rings = 0;
    static_cast<void>(::read(wake, &rings, sizeof rings));
    send_queued();
  }
  if (list_changed.exchange(false)) {
    follow_list();
  }
  if ((items[2].revents & ZMQ_POLLIN) != 0) {
    connections.follow();
  }
  if (reading && (items[3].revents & ZMQ_POLLIN) != 0) {
    read_batch();
  }
  if (reading) {
    if (const std::size_t closed = connections.close_silent(Clock::now()); closed > 0) {
      rejects.add("silent_connection", closed);
      log::warning_limited(kLog, "silent",
                           fmt::format("closed {} connections that never said a word", closed));
    }
  }
}

void Net::Impl::send_queued() {
  while (auto next = outgoing.pop(std::chrono::milliseconds(0))) {
    send(next->message);
    if (next->cause) {
      const auto now = Clock::now();
      reaction.add(now - *next->cause, now);
    }
  }
}

void Net::Impl::follow_list() {
  const std::lock_guard lock(agents_mutex);
  outbound.spread_reconnects(reconnect_spread_s(agents.size()));
  std::erase_if(peers, [this](const auto& entry) {
    if (agents.allows(entry.first)) {
      return false;
    }
    log::warning(kLog, fmt::format("node {} is cut off: its key was taken from the allow-list",
                                   entry.first));
    Connections::cut_off(entry.second.descriptor);
    return true;
  });
}

void Net::Impl::send(const SendToAgent& message) {
  const auto peer = peers.find(message.node);
  if (peer == peers.end()) {
    return;
  }
  bool reachable = true;
  const auto ok = outbound.encode(message, [&](const wire::ToAgent& part) {
    reachable = reachable && send_frames(message.node, peer->second.routing_id,
                                         wire::encode(part, ++peer->second.sequence));
  });
  if (!ok) {
    log::error(kLog, ok.error().message);
  }
  if (!reachable) {
    peers.erase(peer);
  }
}

/// False when the peer is gone.
bool Net::Impl::send_frames(const std::string& node, const std::string& routing_id,
                            const wire::Frames& frames) {
  try {
    if (router.send(zmq::buffer(routing_id),
                    zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      router.send(zmq::buffer(frames.header), zmq::send_flags::sndmore);
      router.send(zmq::buffer(frames.payload), zmq::send_flags::none);
      return true;
    }
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) {
      return false;
    }
    throw;
  }
  rejects.add("agent_slow");
  log::warning_limited(
      kLog, "slow " + node,
      fmt::format("agent {} does not read its messages; it is cut off until it says "
                  "HELLO again. Look at tapas-agent on that node",
                  node));
  return false;
}

void Net::Impl::read_batch() {
  const auto begin = Clock::now();
  std::vector<Event> events;
  Incoming message;
  std::size_t records = 0;
  for (std::size_t i = 0; i < kBatchMessages && records < kBatchRecords && receive(message); ++i) {
    records += handle(message, events);
  }
  if (!events.empty()) {
    batches_in_core.fetch_add(1);
    deliver(std::move(events), begin);
  }
}

/// Takes one message off the socket, whatever its size; keeps no more frames than can be legal.
bool Net::Impl::receive(Incoming& out) {
  zmq::message_t part;
  if (!router.recv(part, zmq::recv_flags::dontwait)) {
    return false;
  }
  out.routing_id.assign(part.data<char>(), part.size());
  out.frames.clear();
  bool more = part.more();
  while (more) {
    static_cast<void>(router.recv(part, zmq::recv_flags::none));
    more = part.more();
    if (!more) {
      // libzmq 4.3.4 gives a polled message's properties with its last frame only.
      out.user = property(part, "User-Id");
      out.address = property(part, "Peer-Address");
      out.descriptor = zmq_msg_get(part.handle(), ZMQ_SRCFD);
    }
    if (out.frames.size() <= wire::kMaxFrames) {
      out.frames.push_back(std::move(part));
      part.rebuild();
    }
  }
  return true;
}

bool Net::Impl::within_quota(const Incoming& message) {
  std::size_t bytes = 0;
  for (const zmq::message_t& frame : message.frames) {
    bytes += frame.size();
  }
  const std::lock_guard lock(quota_mutex);
  return quotas[message.user].take(bytes, Clock::now());
}

/// Appends what the message means to `events`; returns how many records it held.
std::size_t Net::Impl::handle(const Incoming& message, std::vector<Event>& events) {
  {
    const std::lock_guard lock(agents_mutex);
    if (!agents.allows(message.user)) {
      reject(message, "revoked_key", "its key was taken from the allow-list");
      peers.erase(message.user);
      Connections::cut_off(message.descriptor);
      return 0;
    }
  }
  if (connections.spoke(message.user, message.descriptor)) {
    reject(message, "too_many_connections",
           fmt::format("the node has more than {} connections; the oldest is closed. Look at "
                       "tapas-agent there, and whether its key is in use elsewhere",
                       Connections::kPerNode));
  }
  if (!within_quota(message)) {
    reject(message, "over_limit",
           fmt::format("more than {:.0f} messages or {:.0f} MB a second; what is over is dropped. "
                       "Look at tapas-agent and the ranks on that node",
                       Quota::kMessagesPerS, Quota::kBytesPerS / 1e6));
    return 0;
  }
  std::vector<std::span<const std::byte>> frames;
  for (const zmq::message_t& frame : message.frames) {
    frames.emplace_back(frame.data<std::byte>(), frame.size());
  }
  auto inbound = read_message(message.user, frames);
  if (!inbound) {
    reject(message, inbound.error().reason, inbound.error().sentence);
    if (inbound.error().turn_away) {
      const wire::Reject answer{inbound.error().sentence, 0};
      static_cast<void>(
          send_frames(message.user, message.routing_id, wire::encode(wire::ToAgent(answer), 1)));
    }
    return 0;
  }
  const auto peer = peers.find(message.user);
  if (inbound->is_hello) {
    if (peer == peers.end()) {
      peers.emplace(message.user, Peer{message.routing_id, message.descriptor, 0});
    } else if (peer->second.routing_id != message.routing_id) {
      peer->second = {message.routing_id, message.descriptor, 0};
    }
  } else if (peer == peers.end() || peer->second.routing_id != message.routing_id) {
    ask_for_hello(message.user, message.routing_id);
    return 0;
  }
  steps += inbound->counts.step_records;
  links += inbound->counts.link_records;
  health += inbound->counts.health_records;
  if (inbound->event) {
    events.push_back(std::move(*inbound->event));
  }
  return inbound->counts.step_records + inbound->counts.link_records;
}

/// A daemon that just started knows nobody, and an agent on an old connection cannot tell.
void Net::Impl::ask_for_hello(const std::string& node, const std::string& routing_id) {
  const auto now = Clock::now();
  auto& last = asked[node];
  if (now - last < std::chrono::duration<double>(kHelloRetryS)) {
    return;
  }
  last = now;
  static_cast<void>(send_frames(
      node, routing_id,
      wire::encode(wire::ToAgent(wire::Reject{"say HELLO first on this connection", kHelloRetryS}),
                   1)));
}

void Net::Impl::reject(const Incoming& message, std::string_view reason,
                       std::string_view sentence) {
  rejects.add(std::string(reason));
  log::warning_limited(kLog, fmt::format("{} {}", message.user, reason),
                       fmt::format("refused a message of node {} at {}: {}", message.user,
                                   message.address, sentence));
}

}  // namespace tapas::daemon
