#pragma once

#include "base/result.h"
#include "daemon/core/core.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas {

/// What `tapasd` reads at start (`tapas.tapasd/1`, JSON with comments). Paths in the file are
/// relative to the file's folder; here they are ready to open.
struct DaemonConfig {
  std::string listen;          ///< ZeroMQ endpoint for agents
  std::string server_key;      ///< file of the daemon's secret CURVE key
  std::string agent_keys;      ///< folder of <node>.pub, the agents that are let in
  std::string state_dir;       ///< database and pid file; local disk
  std::string control_socket;  ///< unix socket of the operator API
  std::string http_listen;     ///< host:port of the read-only listener; empty = none
  std::string
      operator_group;  ///< members may change things; empty = root and the daemon's user only
  std::vector<std::string> jobs;  ///< job files
  std::int64_t event_rows = 0;    ///< journal lines kept
  std::string recording;          ///< file of what the core is told and does; empty = none
  std::int64_t recording_mib = 0;
  daemon::CoreConfig core;
};

/// Errors name the file and the key, and for an unknown key the nearest known one.
[[nodiscard]] Result<DaemonConfig> load_daemon_config(const std::string& path);

/// What a reload takes over: the core's options. Named with old and new values,
/// "cooldown_s 30 -> 60"; empty when none differs.
[[nodiscard]] std::vector<std::string> core_changes(const DaemonConfig& before,
                                                    const DaemonConfig& after);
/// Options that differ and need a restart.
[[nodiscard]] std::vector<std::string> other_changes(const DaemonConfig& before,
                                                     const DaemonConfig& after);

/// Every option with its default, bounds and meaning, as `tapasd --help` prints it.
[[nodiscard]] std::string describe_daemon_options();

}  // namespace tapas
