#pragma once

#include "base/ids.h"
#include "daemon/core/flaps.h"
#include "daemon/core/input_watch.h"
#include "daemon/core/level.h"
#include "daemon/core/roles.h"
#include "daemon/core/rotating.h"
#include "daemon/core/step_window.h"
#include "daemon/core/team.h"
#include "daemon/core/work_hints.h"
#include "solver/model/cluster_state.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tapas::daemon {

/// One plain step of the whole job.
struct JobStep {
  std::uint64_t step = 0;
  double wall_s = 0;   ///< median over ranks
  double begin_s = 0;  ///< job time
  double end_s = 0;
};

/// A rank or stage found slow, or the job's step time.
struct Deviation {
  double slowdown = 1;  ///< 1.6 = takes 1.6 times as long
  /// What it was and is: of a rank or stage, times what its equals take; of the job, seconds.
  double before = 1;
  double after = 1;
  double confidence = 0;  ///< standard errors beyond what healthy ones differ by
  StepStamp since;
  std::uint32_t steps = 0;  ///< since then
};
struct RankDeviation : Deviation {
  RankId rank;
  double share =
      1;  ///< of the steps; less than 1: it flaps, and slowdown is the mean over all steps
};
struct StageDeviation : Deviation {
  std::uint32_t stage = 0;
};
/// All that deviates at one moment; what attribute() turns into a verdict.
struct Findings {
  std::vector<RankDeviation> ranks;
  std::vector<StageDeviation> stages;
  std::optional<Deviation> job;  ///< step time
  /// The slowest rank or replica of each step against what it usually takes, when it is not the
  /// same one again and again.
  std::optional<Deviation> rotating;
  /// Their own data loaders are late: slowdown of the step, before and after in seconds of waiting.
  std::vector<RankDeviation> late;
  // What may make the step longer, each by how many times against what it was while learning.
  double compute_ratio = 1;   ///< median compute
  double work_ratio = 1;      ///< tokens of the largest batch, as far as compute follows them
  double input_ratio = 1;     ///< the longest wait for input
  bool compute_known = true;  ///< false: the ranks report wall times only
  /// Slow with its replica: a long batch, or the nodes; time will tell.
  bool undecided = false;
  std::uint32_t reporting = 0;
  std::uint32_t expected = 0;
};

/// Waits a few steps after something began, so that what belongs together is seen together.
class Settle {
 public:
  /// Once per step; true once, when the wait is over or, earlier, all is `clear`.
  bool tick(bool begun, bool clear = false);
  void reset() { age_ = 0; }
  [[nodiscard]] bool waiting() const { return age_ > 0; }

 private:
  std::uint32_t age_ = 0;
};

/// The levels of one job. Compute time is judged among equals only; wall time and waiting never
/// point at a rank, as the slow one waits least and everybody's step takes as long as its.
class Watch {
 public:
  explicit Watch(std::uint32_t ranks);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// A new epoch: ranks whose work changed learn again, blames stay.
  void follow(const Roles& roles);
  /// The job's processes were started anew: all learn again, blames stay with their devices, those
  /// of data loaders end with them.
  void new_session();
  /// Another device sits in the slot.
  void forget(RankId rank);

  /// Judges a whole step; nothing for a step that is no plain training step (flags, too few ranks).
  std::optional<JobStep> observe(const WholeStep& step);

  /// True once, a few steps after something began to deviate: time for a verdict.
  [[nodiscard]] bool verdict_due() const { return due_; }
  /// What deviates and holds; dismisses alarms that do not.
  [[nodiscard]] Findings findings();

  /// A rank that does not lie there is not blamed: its node may be slow, it is not.
  void blame(RankId rank, double slowdown);
  /// Blamed before the daemon was restarted, or in another slot: holds until it is seen to be well.
  void restore(RankId rank, double slowdown);
  /// No node is to blame: what deviates now is taken for the work's own, the stages' and the
  /// step's return is still noticed.
  void accept(const std::vector<std::uint32_t>& stages);
  void accept_rotating();
  /// Their loaders are late: told, and no step time that grows with it is.
  void accept_late(RankId rank) { input_.blame(rank); }
  /// The same, told before the daemon was restarted; `before` and `slowdown` as of late_level().
  void restore_late(RankId rank, double before, double slowdown);
  /// Culprits back at their baseline, once the other devices of a node had time to join; cleared.
  [[nodiscard]] std::vector<RankId> take_recovered();
  [[nodiscard]] bool take_job_recovered();
  [[nodiscard]] std::vector<std::uint32_t> take_recovered_stages();
  [[nodiscard]] bool take_rotating_recovered();
  /// Their input is there in time again.
  [[nodiscard]] std::vector<RankId> take_input_recovered();
  /// Culprits whose level changed; the new level is taken over.
  [[nodiscard]] std::vector<RankId> take_moved();

  /// A rank that the plan uses is slow.
  [[nodiscard]] bool any_blamed() const;
  /// A rank's data loader is known to be late.
  [[nodiscard]] bool any_late() const { return input_.any_blamed(); }
  [[nodiscard]] bool is_late(RankId rank) const { return input_.level(rank).blamed(); }
  /// Of what a rank waits for its input: how many times as long a step takes, log.
  [[nodiscard]] const Level& late_level(RankId rank) const { return input_.level(rank); }
  [[nodiscard]] bool any_suspect() const { return alarm_.waiting() || due_; }
  /// A rank is half way to an alarm, or a blamed one to its baseline.
  [[nodiscard]] bool rising() const;
  [[nodiscard]] bool learning() const { return wall_.learning(); }
  /// Measured slowdowns of all culprits, with a role or without; exactly 1 for everybody else, so
  /// that nothing is moved for a difference that is only noise.
  [[nodiscard]] std::vector<double> slowdowns() const;
  [[nodiscard]] double slowdown(RankId rank) const;
  /// Robust step time lately; 0 = none yet.
  [[nodiscard]] double recent_step_s() const;
  /// Step time learnt under this epoch; 0 while learning. It is learnt again when the job got
  /// faster: times_learnt() tells.
  [[nodiscard]] double learnt_step_s() const;
  [[nodiscard]] std::uint32_t times_learnt() const { return wall_.times_learnt(); }
  /// Noise of the job's step time, log units.
  [[nodiscard]] double step_sigma() const { return wall_noise_.sigma(); }

 private:
  void observe_compute(const WholeStep& step, const StepStamp& stamp);
  /// A stage on two nodes has no majority to tell its own pace from a fault; but how far the two
  /// lie apart, no error of the cost model explains.
  void expect_of_pair(std::uint32_t stage);
  void observe_stages(const StepStamp& stamp);
  void observe_flaps(RankId rank, double value, const StepStamp& stamp);
  void observe_rotating(const StepStamp& stamp);
  void observe_wall(double wall_s, const StepStamp& stamp);
  /// Someone is known to be slow or late: nothing else is said about longer steps.
  [[nodiscard]] bool explained() const { return any_blamed() || any_late(); }
  /// Ranks with late loaders. A stage that waits for its neighbours anyway may load its batch
  /// meanwhile: only what makes the step longer counts. When it was so from the start nobody knows
  /// how long the step would be.
  [[nodiscard]] std::vector<RankId> late() const;
  /// What the step took until now was learnt with a culprit.
  void learn_step_anew();
  void find_ranks(Findings& out);
  void find_stages(Findings& out);
  void find_late(Findings& out);
  void find_rotating(Findings& out);
  void settle();
  void make_teams();
  /// Nobody beside an alarmed one is half way to an alarm.
  [[nodiscard]] bool clear_cut() const;
  /// Finds who is slow together, though each of them alone is still in the noise.
  void join();
  void join(const std::vector<Team*>& group);
  /// The other stages of its replica are as slow since the same step: a long batch, not the node.
  /// When that lasts it is no longer by chance.
  [[nodiscard]] bool with_its_replica(RankId rank, const Level& level) const;
  /// Few nodes flap; else the work is uneven.
  [[nodiscard]] bool flaps_alone() const;
  [[nodiscard]] RankDeviation flapping(RankId rank) const;
  /// A blamed rank is healthy again.
  [[nodiscard]] bool back(RankId rank) const;
  [[nodiscard]] Sensitivity rank_sensitivity() const;
  /// The work is known to be uneven: each step another rank or replica is slow.
  [[nodiscard]] bool uneven() const;
  [[nodiscard]] Sensitivity wall_sensitivity() const;
  [[nodiscard]] Sensitivity rotating_sensitivity() const;

  Roles roles_;
  std::vector<Level> ranks_;
  std::vector<double> previous_;  ///< last log ratio per rank, NaN = none
  std::vector<Level> stages_;
  Level wall_;
  Level compute_;             ///< median compute of the job, absolute
  std::vector<Flaps> flaps_;  ///< per rank
  std::vector<Team> teams_;
  /// Teams that are judged together: one, or all of a stage too small to be compared within.
  std::vector<std::vector<Team*>> groups_;
  /// Per rank, of the latest findings: the level of its team when it is slow with that, else null.
  std::vector<const Level*> joined_;
  InputWatch input_;
  WorkHints hints_;
  Rotating rotating_ranks_;     ///< pauses
  Rotating rotating_replicas_;  ///< uneven batches: they hit all ranks of a replica
  double ranks_by_chance_ = 0;
  double replicas_by_chance_ = 0;
  double doubt_ = 2;  ///< standard errors by which the worst known baseline may be off
  NoiseEstimate rank_noise_;
  NoiseEstimate team_noise_;
  NoiseEstimate wall_noise_;
  std::vector<double> walls_;         ///< last few, oldest first
  std::uint64_t learnt_at_step_ = 0;  ///< step at which the step time was learnt
  double previous_wall_ = 0;
  Settle alarm_;
  Settle recovery_;
  Settle move_;
  bool due_ = false;
  bool recovery_due_ = false;
  bool move_due_ = false;
  std::uint32_t session_steps_ = 0;  ///< plain ones since the session began
  std::uint32_t reporting_ = 0;
  bool compute_known_ = true;

  // Scratch of one step.
  std::vector<double> log_ratio_;  ///< per rank, NaN = not reported
  std::vector<double> latest_;     ///< the same over its equals
  std::vector<double> stage_median_;
  double job_median_ = 0;
};

}  // namespace tapas::daemon
