#pragma once

#include "base/json/json.h"

#include <cstddef>
#include <string>

/// Agents as they appear in tapas.status/1, for people.
namespace tapas::ctl {

/// Slowdown from which a node is worth an operator's eye.
inline constexpr double kSlowNode = 1.05;

/// Every agent, one line each.
[[nodiscard]] std::string agent_table(const json::Value& agents);

/// A line of counts by state, then the agents that need attention by name, worst first, never more
/// than `max_named`.
[[nodiscard]] std::string agent_digest(const json::Value& agents, std::size_t max_named);

}  // namespace tapas::ctl
