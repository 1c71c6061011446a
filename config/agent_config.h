#pragma once

#include "base/log/log.h"
#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tapas::config {

/// `tapas.agent/1`, by default /etc/tapas/agent.json; docs/formats.md has the keys.
struct AgentConfig {
  std::string node;               ///< name in the cluster file; the host's name by default
  std::string daemon_endpoint;    ///< such as "tcp://head:7070"
  std::string daemon_public_key;  ///< path
  std::string secret_key;         ///< path of this node's key
  std::string public_key;         ///< path; by default secret_key with .pub for .key
  std::string rank_dir;           ///< where ranks put their segments
  double scan_interval_s = 0.0;   ///< between looks for new and dead ranks
  double poll_interval_s = 0.0;   ///< between reads of the ranks' rings
  double flush_interval_s = 0.0;  ///< longest wait of a record for its batch
  double phase_timeout_s = 0.0;   ///< for the ranks' answers to an order
  double order_timeout_s = 0.0;   ///< for the daemon's next order of a switch
  std::int64_t max_queued_records = 0;
  log::Level log_level = log::Level::kInfo;
};

[[nodiscard]] Result<AgentConfig> load_agent_config(const std::string& path);
/// `name` is shown in errors.
[[nodiscard]] Result<AgentConfig> parse_agent_config(std::string_view text, std::string_view name);

}  // namespace tapas::config
