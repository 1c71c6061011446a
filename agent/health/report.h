#pragma once

#include "agent/health/findings.h"
#include "agent/health/node_health.h"
#include "agent/health/rates.h"

#include <string>
#include <vector>

namespace tapas::agent::health {

/// Two readings of a node, the second one in full.
struct Report {
  NodeHealth node;
  Rates rates;
  std::vector<Finding> findings;
};

/// `tapas.health/1` of docs/agent.md, indented or in one line, ended by a newline. Unknown values
/// are null.
[[nodiscard]] std::string to_json(const Report& report, bool one_line = false);

/// Tables for people. Unknown values are "?".
[[nodiscard]] std::string to_text(const Report& report);

}  // namespace tapas::agent::health
