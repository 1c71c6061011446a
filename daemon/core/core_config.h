#pragma once

#include <cstdint>

namespace tapas::daemon {

/// Tunables of the core; bounds and help text live in config/daemon_config. All but `auto_replan`
/// take effect on a reload as they are; that one only when it was changed in the file.
struct CoreConfig {
  double heartbeat_s = 1.0;
  double agent_lost_s = 10.0;  ///< silence after which an agent counts as lost
  bool auto_replan = false;    ///< false = observe only
  double prepare_deadline_s = 30.0;
  double arm_deadline_s = 600.0;  ///< a step may take long
  double transfer_deadline_s = 120.0;
  double commit_deadline_s = 30.0;
  double episode_prior_s = 0;           ///< expected length of a fresh episode; 0 = by its cause
  double min_gain_ratio = 0.02;         ///< of the step time; less is left alone
  double dead_band_ratio = 0.15;        ///< of a slowdown; less is no reason to plan again
  double cooldown_s = 30.0;             ///< job time between two automatic switches of a job
  double flap_quarantine_s = 600.0;     ///< before work goes back to a node slow twice in a row
  std::uint32_t replans_per_hour = 12;  ///< automatic, per job, job time
};

}  // namespace tapas::daemon
