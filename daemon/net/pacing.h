#pragma once

#include "daemon/core/core_config.h"

#include <algorithm>
#include <cstddef>

namespace tapas::daemon {

/// Agents that come back in a second after an outage: each handshake costs a core some
/// milliseconds.
inline constexpr double kReconnectsPerS = 250;
/// Heartbeats of all agents a second.
inline constexpr double kHeartbeatsPerS = 2500;

/// Over how long `agents` that lost the daemon spread their return.
[[nodiscard]] inline double reconnect_spread_s(std::size_t agents) {
  return static_cast<double>(agents) / kReconnectsPerS;
}

/// The configuration with heartbeats as rare as a fleet of `agents` needs, and silence judged by
/// them: three in a row may be lost.
[[nodiscard]] inline CoreConfig paced(CoreConfig config, std::size_t agents) {
  config.heartbeat_s = std::max(config.heartbeat_s, static_cast<double>(agents) / kHeartbeatsPerS);
  config.agent_lost_s = std::max(config.agent_lost_s, 3 * config.heartbeat_s);
  return config;
}

}  // namespace tapas::daemon
