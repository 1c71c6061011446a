#pragma once

#include "base/log/log.h"
#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tapas {

/// `tapas.agent/1`, by default /etc/tapas/agent.json.
struct AgentConfig {
  std::string node;                ///< name in the cluster file; the host's name by default
  std::string daemon_endpoint;     ///< such as "tcp://head:7070"
  std::string daemon_public_key;   ///< file
  std::string secret_key;          ///< file of this node's key; its public key follows from it
  std::string rank_dir;            ///< where ranks put their segments
  double scan_interval_s = 0.0;    ///< between looks for new and dead ranks
  double poll_interval_s = 0.0;    ///< between reads of the ranks' rings
  double flush_interval_s = 0.0;   ///< longest wait of a record for its batch
  double phase_timeout_s = 0.0;    ///< for the ranks' answers to an order
  double order_timeout_s = 0.0;    ///< for the daemon's next order of a switch
  double health_interval_s = 0.0;  ///< between readings of the node's health; 0 = none
  std::string health_root;         ///< folder that holds sys and proc
  std::int64_t max_queued_records = 0;
  log::Level log_level = log::Level::kInfo;
};

/// Paths in the file are relative to its folder; here they are ready to open.
[[nodiscard]] Result<AgentConfig> load_agent_config(const std::string& path);
/// The same for text that came from `path`.
[[nodiscard]] Result<AgentConfig> parse_agent_config(std::string_view text,
                                                     const std::string& path);

/// Every key with its default, bounds and meaning, as `tapas-agent --help` prints it.
[[nodiscard]] std::string describe_agent_options();

}  // namespace tapas
