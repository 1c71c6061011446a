#pragma once

#include "base/result.h"
#include "daemon/core/event.h"
#include "daemon/jobs.h"
#include "daemon/net/allow_list.h"
#include "daemon/net/latency.h"
#include "daemon/net/reject_counter.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapas::daemon {

struct NetOptions {
  std::string listen;      ///< ZeroMQ endpoint
  std::string secret_key;  ///< Z85
  std::string agent_keys;  ///< folder, named in warnings
};

/// The agents' side of the daemon: one thread that owns every ZeroMQ socket of the process. Agents
/// are who their CURVE key says they are; everything they send is bounded, decoded and counted
/// here, so the core sees values only. When the core falls behind, reading stops and the pressure
/// goes back to the agents' own queues.
class Net {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// Events in the order they came in, and when the first came; called on the net thread. Answer
  /// each call with one batch_done() when the events are applied.
  using Deliver = std::function<void(std::vector<Event>, TimePoint)>;

  /// Binds the authentication handler first, then the agents' socket; nothing is let in before
  /// start().
  [[nodiscard]] static Result<std::unique_ptr<Net>> open(const NetOptions& options,
                                                         AllowList agents, JobMap jobs,
                                                         RejectCounter& rejects);
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  void start(Deliver deliver);
  void stop();

  // From any thread.
  /// Queued; a message to an agent that is away is dropped, as the agent will say HELLO again.
  /// `cause`: when the message came in that this one answers.
  void send(SendToAgent message, std::optional<TimePoint> cause);
  void batch_done();
  /// A new allow-list for connections and messages from now on; who is not on it is cut off.
  void set_agents(AllowList agents);
  /// Where it really listens, with the port that a wildcard got.
  [[nodiscard]] const std::string& endpoint() const;
  /// Grows while the thread lives and makes progress.
  [[nodiscard]] std::uint64_t beats() const;

  /// Records taken in since the start, by kind.
  [[nodiscard]] std::map<std::string, std::uint64_t> received() const;
  /// Messages over the limit since the start, by node; only nodes that had any.
  [[nodiscard]] std::map<std::string, std::uint64_t> over_limit() const;
  /// From taking a message off the socket to handing its answer to the socket.
  [[nodiscard]] RecentTimes::Summary reaction() const;

 private:
  struct Impl;
  explicit Net(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tapas::daemon
