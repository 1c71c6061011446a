#pragma once

#include "agent/health/node_health.h"
#include "config/agent_config.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::agent::doctor {

enum class State : std::uint8_t {
  kGood,
  kNote,    ///< The agent works; something is less than it could be.
  kBroken,  ///< The agent does not work until this is mended.
};

[[nodiscard]] std::string_view to_string(State state);

/// What one check saw.
struct Check {
  std::string name;  ///< Stable word for programs.
  State state = State::kGood;
  std::string seen;    ///< One sentence or less.
  std::string advice;  ///< What to do next; empty when the state is good.
};

/// Keys, and whether the daemon takes them: connects and shakes hands with the node's own key, but
/// says no word, so that an agent that runs is not displaced. Waits up to `patience`.
[[nodiscard]] Check check_daemon(const AgentConfig& config, std::chrono::milliseconds patience);

/// The folder where ranks meet the agent: there, writable, in memory, with room.
[[nodiscard]] Check check_rank_dir(const AgentConfig& config);

/// The ranks in it: how many live, how many are another node's or cannot be read.
[[nodiscard]] Check check_ranks(const AgentConfig& config);

/// Whether the kernel's clock is synchronised, as step times of nodes are compared.
[[nodiscard]] Check check_clock();

/// GPUs on the bus against the driver's devices below `dev`.
[[nodiscard]] Check check_gpus(const health::NodeHealth& node, const std::string& dev = "/dev");

/// RDMA devices where the bus has NICs of a maker of such.
[[nodiscard]] Check check_rdma(const health::NodeHealth& node);

/// The kernel's pressure figures.
[[nodiscard]] Check check_pressure(const health::NodeHealth& node);

/// NCCL's RAS service at `address` ("host:port"), which is there while a job runs.
[[nodiscard]] Check check_nccl(const std::string& address, std::chrono::milliseconds patience);

}  // namespace tapas::agent::doctor
