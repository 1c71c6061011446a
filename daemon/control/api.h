#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "daemon/control/format.h"
#include "daemon/control/http_message.h"
#include "daemon/control/peer.h"
#include "daemon/core/core.h"
#include "daemon/core/event.h"
#include "daemon/jobs.h"
#include "daemon/store/store.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::daemon {

/// What the API needs of the rest of the daemon. Called on the core thread.
struct ApiBackend {
  std::function<StatusView()> status;
  std::function<WireView()> wire;
  std::function<std::map<std::string, std::uint64_t>()> rejected;
  std::function<std::shared_ptr<const solver::Plan>(const std::string& job)> plan;
  std::function<void(OperatorCommand)> submit;
  Store* store = nullptr;
  /// Runs a function on the core thread soon; may be called from any thread.
  std::function<void(std::function<void()>)> post;
};

/// The operator API without its socket: docs/operator-api.md. Lives on the core thread; every
/// request is answered exactly once, maybe later.
class Api {
 public:
  using Reply = HttpReply;
  using Clock = std::chrono::steady_clock;

  Api(ApiBackend backend, JobMap jobs, std::string operator_group)
      : backend_(std::move(backend)), jobs_(std::move(jobs)), group_(std::move(operator_group)) {}

  /// `peer`: who asks; nobody that is known may read only.
  void handle(const HttpRequest& request, const std::optional<OperatorPeer>& peer, Reply reply);

  /// The core's answer to a command that came from here.
  void complete(const OperatorReply& reply);
  /// New journal lines exist, up to this id: answers those who wait for them.
  void events_stored(std::int64_t last);
  /// Answers those who waited long enough. Call at least twice a second.
  void tick(Clock::time_point now);

 private:
  struct Target;
  struct Waiter {
    std::int64_t after;
    std::size_t limit;
    Clock::time_point until;
    Reply reply;
  };
  struct Pending {
    std::string job;  ///< of a replan
    Clock::time_point until;
    Reply reply;
  };

  static void answer_error(const Reply& reply, const Error& error);
  /// For machines: /livez, /readyz, /metrics. False for other paths.
  bool probe(const std::string& path, const Reply& reply);
  void read(const Target& target, Reply reply);
  void read_job(const Target& target, Reply reply);
  void read_events(const Target& target, Reply reply);
  void send_events(std::optional<std::int64_t> after, std::size_t limit, Reply reply);
  void change(const HttpRequest& request, const OperatorPeer& peer, const Target& target,
              Reply reply);
  /// Wraps a reply so that it can be called on the store's thread.
  template <typename T>
  Store::Reply<T> on_core(Reply reply, std::function<json::Value(const T&)> format);

  ApiBackend backend_;
  const JobMap jobs_;
  const std::string group_;
  std::int64_t last_event_ = 0;
  std::uint64_t next_request_ = 1;
  std::list<Waiter> waiters_;
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace tapas::daemon
