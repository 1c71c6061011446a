#pragma once

#include "daemon/core/core_config.h"
#include "daemon/core/event.h"
#include "solver/model/job.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapas::daemon {

/// What the store held at start.
struct RestoredJob {
  std::shared_ptr<const solver::Plan> active;   ///< null = none yet
  std::vector<SwitchRow> open_switches;         ///< kRunning or kCommitDecided
  std::shared_ptr<const solver::Plan> pending;  ///< plan of the open switch
  std::uint64_t last_decision = 0;
  Epoch highest_epoch;  ///< of any plan ever stored, aborted ones included
  LearntRow learnt;
  std::vector<DeviceRow> devices;
  std::vector<AutomaticSwitchRow> switches;  ///< oldest first
  TrialRow trial;
  std::shared_ptr<const solver::Plan> before_trial;  ///< null unless a trial is open
  LossRow loss;
  std::vector<SlowLinkRow> slow_links;
  std::vector<LateLoaderRow> late_loaders;
};
struct Restored {
  Term term;  ///< this start's own, already durable
  std::map<std::string, RestoredJob> jobs;
  std::vector<NodeStateRow> nodes;
  /// The last word of an operator was "auto off": who and why. It outlasts a restart.
  std::optional<std::string> paused = {};
};

// Views for the operator API: copies, so that formatting never touches live state.
struct AgentView {
  std::string node;
  bool connected = false;
  bool drained = false;
  std::string drain_reason;
  bool pinned = false;
  std::string pin_reason;
  double clock_off_s = 0;   ///< its clock is ahead of most others; nothing depends on it
  double quarantine_s = 0;  ///< job time until work may move back to it, 0 = now
  double silent_s = 0;
  std::uint64_t records = 0;
  std::uint64_t records_dropped = 0;
  double slowdown = 1.0;              ///< worst rank of the node, 1.0 = healthy or unknown
  std::vector<NodeFinding> findings;  ///< what its agent finds wrong with it
};
struct JobView {
  std::string job;
  std::uint64_t session = 0;
  std::shared_ptr<const solver::Plan> plan;  ///< null while the first is being solved
  std::string
      phase;  ///< "solving", "waiting for agents", "learning", "watching", "switching: armed", ...
  std::uint64_t last_step = 0;
  double observed_step_s = 0;  ///< recent median, 0 = none yet
  double healthy_step_s = 0;   ///< level learnt while healthy under this plan's ancestors, 0 = none
  double predicted_step_s = 0;          ///< calibrated
  double bound_step_s = 0;              ///< calibrated lower bound under the current slowdowns
  std::string verdict;                  ///< one sentence
  std::vector<std::string> slow_links;  ///< a sentence each
  std::uint32_t ranks_reporting = 0;
  std::uint32_t ranks_expected = 0;
};
struct StatusView {
  Term term;
  bool auto_replan = false;
  std::string auto_reason;
  std::vector<AgentView> agents;
  std::vector<JobView> jobs;
  std::map<std::string, std::uint64_t> rejected;  ///< count by reason
  /// Journal lines since the start: job (empty = of no job) -> kind -> count.
  std::map<std::string, std::map<std::string, std::uint64_t>> events;
};

/// What the status says of an operator's word on automatic replans.
[[nodiscard]] std::string auto_reason(bool on, const std::string& who, const std::string& reason);

/// The decision core: a reducer. Same construction and same events give the same actions. Not
/// thread-safe; owned by the core thread.
///
/// Per job: learn -> watch -> verdict -> decision -> micro-replan -> check -> switch -> verify.
/// Agents that are not part of any job's plan are welcome and idle (parked).
class Core {
 public:
  Core(CoreConfig config, std::vector<std::shared_ptr<const solver::Job>> jobs, Restored restored);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] std::vector<Action> apply(const Event& event, const Now& now);

  [[nodiscard]] StatusView status(const Now& now) const;
  [[nodiscard]] std::shared_ptr<const solver::Job> job(const std::string& name) const;
  [[nodiscard]] std::shared_ptr<const solver::Plan> plan(const std::string& job) const;
  /// The last decisions of a job, newest first (bounded; older ones are in the store).
  [[nodiscard]] std::vector<DecisionRow> decisions(const std::string& job) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tapas::daemon
