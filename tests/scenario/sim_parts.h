#pragma once

#include "agent/collect/agent_protocol.h"
#include "tests/scenario/sim.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

/// What the files of the simulation share.
namespace tapas::daemon::sim {

/// The process of one device.
struct Sim::Rank {
  RankId id;
  Epoch epoch = {};
  Epoch pending = {};
  agent::RankOrder done = agent::RankOrder::kAdopt;
  std::optional<std::uint64_t> armed_for = {};  ///< ARM that is not answered yet
  bool holding = false;
  bool trained = false;  ///< under its epoch
};

/// The agent of a node, its connection and its ranks.
struct Sim::Agent {
  std::string node;
  NodeId id;
  std::uint64_t nonce = 0;
  std::unique_ptr<agent::AgentProtocol> protocol;  ///< null: no agent runs here
  bool up = false;                                 ///< connection stands
  std::uint64_t line = 0;     ///< connection number; messages of an older one are lost
  double to_core_free_s = 0;  ///< order of messages within a connection
  double to_agent_free_s = 0;
  double mute_until_s = 0;
  double deaf_until_s = 0;
  std::uint64_t records = 0;
  std::vector<Rank> ranks;
  /// Another one that claims to be this node; the core's messages go to who said HELLO last.
  std::unique_ptr<agent::AgentProtocol> clone;
  bool clone_is_heard = false;
};

[[noreturn]] void broken(const std::string& what);

/// The same plan, whatever is predicted of it.
[[nodiscard]] bool same_content(const solver::Plan& a, const solver::Plan& b);

/// Nobody ordered the switch, by the trigger of its plan.
[[nodiscard]] bool is_automatic(const std::string& trigger);

/// Its ranks have work under the plan.
[[nodiscard]] bool has_position(const solver::Plan& plan, const solver::Job& job, RankId rank);

}  // namespace tapas::daemon::sim
