#pragma once

#include "agent/collect/agent_protocol.h"
#include "agent/twin/fault.h"
#include "agent/twin/truth.h"
#include "base/ids.h"
#include "base/result.h"
#include "solver/model/job.h"
#include "wire/record.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapas::twin {

/// A step that the whole job has finished.
struct FinishedStep {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint32_t flags = 0;  ///< wire::StepFlag bits
  double end_s = 0;         ///< job time
  std::vector<Fault> faults;
  StepTruth truth;
};

/// A pause that ended with the job going on, under the new plan or the old one.
struct FinishedSwitch {
  std::uint64_t from_epoch = 0;
  std::uint64_t epoch = 0;  ///< what the switch aimed at
  bool committed = false;
  std::uint64_t after_step = 0;
  double pause_s = 0;  ///< job time
  double bytes = 0;    ///< moved between devices
};

/// The synchronous training job inside the cluster: all ranks of all nodes, on a job clock of their
/// own. Ranks obey the orders that their node's agent passes on and answer them; the job stops as
/// a whole at the first step boundary that one of its ranks is armed for, and goes on when every
/// rank with a position runs one and the same epoch and none is in the middle of a switch.
///
/// When a rank is killed the step under way is lost and the others hang, until their launcher stops
/// them all and starts all anew: ranks without a plan, in another session, that go on after the
/// last finished step.
///
/// Job time passes `speed` times as fast as wall time while the job computes or moves layers, and
/// with wall time while it waits for the daemon or is started anew. Sees no clock and no socket.
/// Not thread-safe.
class VirtualJob {
 public:
  struct Options {
    double speed = 1.0;
    std::uint64_t seed = 1;
    std::uint64_t max_steps = 0;  ///< 0 = no end
    /// Instead of `speed` while it computes: step records of all ranks a second of wall time.
    double records_per_s = 0;
  };
  enum class Phase { kWaitingForPlan, kBetweenSteps, kStepping, kHolding, kBroken, kDone };

  /// `job` must outlive this.
  VirtualJob(const solver::Job& job, Options options);

  /// A plan's text as an agent received it. All agents must be given the same text for an epoch.
  [[nodiscard]] Result<void> store_plan(std::uint64_t epoch, std::string_view text);
  /// Ranks that are dead, or hang, never answer.
  void order(const agent::RankCommand& command);
  /// The ranks' answers since the last call.
  [[nodiscard]] std::vector<agent::RankReply> take_replies();

  /// Lets wall time pass, at most to the end of one step; returns what is left of it.
  [[nodiscard]] double advance(double wall_s);
  /// Wall time to the next thing that happens by itself; infinity while the daemon is waited for.
  [[nodiscard]] double next_event_s() const;
  [[nodiscard]] std::optional<FinishedStep> take_step();
  [[nodiscard]] std::optional<FinishedSwitch> take_switch();

  /// Like SIGKILL: the rank is gone without a word. False when it was dead already, or is done.
  bool kill(RankId rank);
  [[nodiscard]] bool alive(RankId rank) const { return ranks_[rank.value()].alive; }
  /// Grows whenever ranks die or start.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  /// How often the job was started: each start is a session of its own.
  [[nodiscard]] std::uint64_t starts() const { return starts_; }

  [[nodiscard]] wire::DeviceUuid device_uuid(RankId rank) const;
  /// What an agent finds when it starts on a node.
  [[nodiscard]] agent::LocalRank local_rank(RankId rank) const;

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] std::uint64_t pending_epoch() const;  ///< of the switch under way, 0 = none
  [[nodiscard]] double time_s() const { return time_s_; }
  [[nodiscard]] Faults& faults() { return faults_; }
  [[nodiscard]] const Faults& faults() const { return faults_; }

 private:
  struct Rank {
    bool alive = true;
    std::uint64_t epoch = 0;
    std::uint64_t pending_epoch = 0;
    agent::RankOrder done = agent::RankOrder::kAdopt;
    std::uint64_t term = 0;                  ///< highest of the orders so far
    std::optional<std::uint64_t> armed_for;  ///< ARM that is not answered yet
    std::optional<double> transfer_end_s;    ///< TRANSFER that is not answered yet
    double ordered_s = 0;                    ///< when the open order came
  };
  struct StoredPlan {
    std::string text;
    Result<Layout> layout;
  };

  /// Carries the order out, or says why not. ARM and TRANSFER are answered later.
  [[nodiscard]] std::string carry_out(Rank& rank, const agent::RankCommand& command);
  [[nodiscard]] Result<Layout> read_plan(std::uint64_t epoch, std::string_view text) const;
  [[nodiscard]] std::string plan_objection(std::uint64_t epoch) const;
  void answer(std::uint32_t number, agent::RankOrder order, double bytes);
  [[nodiscard]] const Transfer& transfer_to(std::uint64_t epoch);
  [[nodiscard]] bool stopped_by(const Rank& rank) const;
  /// The epoch that every positioned rank runs, when none stands in the way of the next step.
  [[nodiscard]] std::optional<std::uint64_t> agreed_epoch() const;
  void hold();
  void resume(std::uint64_t epoch);
  void start_step();
  void finish_step();
  void finish_transfers();
  /// The launcher's next move after a death: stop the others, or start all anew.
  void relaunch();
  [[nodiscard]] double next_transfer_end_s() const;
  /// Wall time left of the running step.
  [[nodiscard]] double rest_of_step_s() const { return (running_.end_s - time_s_) / step_speed_; }

  const solver::Job& job_;
  const Options options_;
  Truth truth_;
  Faults faults_;
  std::map<std::uint64_t, StoredPlan> plans_;  ///< active and later epochs
  std::vector<Rank> ranks_;                    ///< by RankId
  std::uint64_t starts_ = 1;
  std::uint64_t changes_ = 1;
  double relaunch_s_ = 0;  ///< while broken: job time of the launcher's next move

  Phase phase_ = Phase::kWaitingForPlan;
  std::uint64_t epoch_ = 0;
  std::uint64_t last_step_ = 0;
  std::uint64_t steps_under_epoch_ = 0;
  std::uint32_t warm_up_flag_ = 0;  ///< for the first steps under the epoch
  double time_s_ = 0;
  double step_speed_ = 1;  ///< of the running step
  FinishedStep running_;
  std::optional<FinishedSwitch> pause_;  ///< the hold under way
  double hold_begin_s_ = 0;
  std::optional<std::pair<std::uint64_t, Transfer>> transfer_;

  std::vector<agent::RankReply> replies_;
  std::optional<FinishedStep> finished_step_;
  std::optional<FinishedSwitch> finished_switch_;
};

}  // namespace tapas::twin
