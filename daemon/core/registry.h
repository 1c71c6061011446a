#pragma once

#include "daemon/core/event.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tapas::daemon {

struct Agent {
  bool connected = false;
  std::uint64_t nonce = 0;  ///< of the last HELLO; another one means that the agent was restarted
  std::chrono::nanoseconds last_heard{0};
  std::uint64_t records = 0;
  std::uint64_t records_dropped = 0;
  std::map<std::string, JobAttachment> jobs;
  std::vector<NodeFinding> findings;  ///< that its node has now
  std::vector<NodeFinding> told;      ///< those that the journal knows of
  std::chrono::nanoseconds may_tell_at{0};
};

/// What changed on a node since the last time.
struct FindingNews {
  std::string node;
  std::vector<NodeFinding> begun;
  std::vector<NodeFinding> over;
};

/// Who is there, by the node name that belongs to the peer's key. Liveness is the agents' own
/// heartbeat on the steady clock, so neither a long step nor a jump of a wall clock kills anybody.
class Registry {
 public:
  struct Arrival {
    bool fresh = false;      ///< not connected before
    bool restarted = false;  ///< connected before under another nonce
  };
  Arrival hello(const AgentHello& hello, const Now& now);

  /// Any sign of life; false when the node never said HELLO or was given up since.
  bool heard(const std::string& node, const Now& now);
  void count(const AgentHeartbeat& heartbeat);

  void find(const AgentFindings& findings);
  /// What the journal should be told of the nodes' findings: at once, but of each node at most once
  /// a minute, whatever its agent says.
  [[nodiscard]] std::vector<FindingNews> take_finding_news(const Now& now);

  /// The node's findings in a few words; empty when it has none.
  [[nodiscard]] std::string findings_of(const std::string& node) const;

  /// Gives up the agents that were silent for longer than `lost_s`, returns their nodes.
  [[nodiscard]] std::vector<std::string> expire(double lost_s, const Now& now);

  [[nodiscard]] bool connected(const std::string& node) const;
  /// Connected, and its ranks of the job are attached.
  [[nodiscard]] bool attached(const std::string& node, const std::string& job) const;
  [[nodiscard]] const std::map<std::string, Agent>& agents() const { return agents_; }

 private:
  std::map<std::string, Agent> agents_;
};

/// Seconds since the agent was heard last.
[[nodiscard]] double silence_s(const Agent& agent, const Now& now);

}  // namespace tapas::daemon
