#pragma once

#include "daemon/core/attribution.h"
#include "daemon/core/core.h"
#include "daemon/core/decision.h"
#include "daemon/core/device_memory.h"
#include "daemon/core/event.h"
#include "daemon/core/link_watch.h"
#include "daemon/core/outbox.h"
#include "daemon/core/registry.h"
#include "daemon/core/roles.h"
#include "daemon/core/step_window.h"
#include "daemon/core/switch_machine.h"
#include "daemon/core/watch.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapas::daemon {

/// Whether plans may change without an operator, and who said so.
struct AutoMode {
  bool on = false;
  std::string reason;
};

/// What the loops of all jobs share, for the time of one apply().
struct LoopContext {
  const CoreConfig& config;
  Registry& registry;
  const std::map<std::string, NodeStateRow>& nodes;
  AutoMode& auto_mode;
  Term term;
  std::uint64_t& last_request;  ///< numbers RequestReplan
  /// Replies that go out once the write is durable.
  std::map<std::uint64_t, OperatorReply>& replies;
  /// What the job did about a drain: (request, sentence).
  std::vector<std::pair<std::uint64_t, std::string>>& drain_answers;
  Outbox& out;
};

/// One job: its plan, its levels, its decisions and its switch.
class JobLoop {
 public:
  JobLoop(std::shared_ptr<const solver::Job> job, RestoredJob restored);

  /// Finishes or undoes what the last run left open; asks for a plan when there is none.
  void start(LoopContext& context);

  void hello(LoopContext& context, const AgentHello& hello, const Registry::Arrival& arrival);
  void agent_lost(LoopContext& context, const std::string& node);

  struct Rejection {
    std::string reason;    ///< fixed word
    std::string sentence;  ///< empty: counted only
  };
  /// Takes a sample that claims to be of this job, sent by `node`.
  [[nodiscard]] std::optional<Rejection> sample(LoopContext& context, const std::string& node,
                                                const StepSample& sample);
  [[nodiscard]] std::optional<Rejection> sample(LoopContext& context, const std::string& node,
                                                const LinkSample& sample);
  /// Judges the steps that became whole.
  void judge(LoopContext& context);

  /// False when the vote belongs to no running switch.
  [[nodiscard]] bool vote(LoopContext& context, const AgentVote& vote);
  void plan_solved(LoopContext& context, const PlanSolved& solved);
  void replan_solved(LoopContext& context, const ReplanSolved& solved);
  void stored(LoopContext& context, const StoreDone& done);
  void tick(LoopContext& context);

  void operator_replan(LoopContext& context, const OperatorCommand& command, bool dry_run);
  /// Tries to move the job off a drained node. A sentence when that is settled at once; else the
  /// answer comes through context.drain_answers.
  [[nodiscard]] std::optional<std::string> drain(LoopContext& context, std::uint64_t request,
                                                 const std::string& node);

  [[nodiscard]] const std::shared_ptr<const solver::Job>& job() const { return job_; }
  [[nodiscard]] const std::shared_ptr<const solver::Plan>& plan() const { return active_; }
  [[nodiscard]] const std::deque<DecisionRow>& decisions() const { return decisions_; }
  [[nodiscard]] JobView view(const Registry& registry) const;
  /// How far the clock of a node is ahead of most others at the end of a step, which all ranks of a
  /// job reach together.
  [[nodiscard]] double clock_off_s(const std::string& node) const;
  /// Job time until work may move back to a node that was slow again and again; 0 = now.
  [[nodiscard]] double resting_s(const CoreConfig& config, const std::string& node) const;
  /// Worst measured slowdown of a node's devices.
  [[nodiscard]] double slowdown(const std::string& node) const;

 private:
  /// A node with slow devices.
  struct Slow {
    Cause cause = Cause::kDevice;
    double since_s = 0;        ///< job time
    double level_since_s = 0;  ///< since its slowdown is what it is now
    std::uint32_t moves = 0;   ///< of that level, in this episode
    double asked_at = 0;       ///< slowdown when a plan was last asked for; 0 = never
    double planned_at = 0;     ///< slowdown that the running plan was made for; 0 = it was not
  };
  /// How long the present condition should still last, and why so long.
  struct Rest {
    double seconds = 0;
    std::string basis;
    bool wanders = false;
  };
  /// A replan on its way through the solver.
  struct Ask {
    Trigger trigger = Trigger::kCulprit;
    Epoch base;  ///< active plan it started from
    std::uint64_t operator_request = 0;
    std::string who;
    bool dry_run = false;
    std::string drained;
    Rest rest = {};
  };
  /// A new plan on trial.
  struct Trial {
    TrialRow row;
    std::shared_ptr<const solver::Plan> old;
    std::vector<double> walls;  ///< of its steps since conditions changed last
    bool disturbed = false;     ///< by what the model does not price
    std::uint32_t steps = 0;    ///< all of them
  };
  /// A trial's outcome; times are of a step as things are now.
  struct Comparison {
    double observed_s = 0;
    double before_s = 0;    ///< with the plan before; 0 = not known
    double promised_s = 0;  ///< with this one
    bool worse = false;     ///< than either, beyond noise
  };

  // job_memory.cc
  void restore_memory(LoopContext& context);
  void know_devices(LoopContext& context, const std::string& node, const JobAttachment& attachment);
  /// Writes down what changed in the memory of devices and links.
  void remember(LoopContext& context);
  void remember_links(LoopContext& context);
  void restore_links();
  /// Writes down whose data loaders are late, as far as that changed.
  void remember_late(LoopContext& context);
  /// A session begins: those of the same one, written down before the daemon was restarted.
  void restore_late(LoopContext& context);
  /// The running plan is another one: made for what is slow now, or the one before a bad idea.
  void plan_changed(LoopContext& context, bool made_for_now);
  /// The plan of the running switch is; else it is the one before a bad idea.
  [[nodiscard]] bool made_for_now() const { return !next_trial_ || next_trial_->row.open; }
  /// What plan_changed() and note_switch() will write once the running switch is decided. They are
  /// stored with the decision: a crash right after it must not lose them.
  [[nodiscard]] std::vector<StoreRow> decision_rows() const;
  void forget_recovered(LoopContext& context);
  [[nodiscard]] const DeviceRow* worst_record(const std::string& node) const;
  [[nodiscard]] std::size_t recent_switches(const std::set<std::string>& nodes) const;
  [[nodiscard]] double idea_rests_until_s(const std::set<std::string>& nodes) const;
  void note_switch(LoopContext& context, const std::vector<std::string>& nodes);
  /// The switch to the running plan was a bad idea; returns how long it rests.
  double note_failure(LoopContext& context, const std::set<std::string>& nodes);

  // job_loop.cc
  [[nodiscard]] std::optional<Rejection> implausible(const std::string& node,
                                                     const StepSample& sample) const;
  /// A step cannot be longer than the time since the rank's step before.
  [[nodiscard]] bool longer_than_its_time(const StepSample& sample);
  [[nodiscard]] bool follows_session(LoopContext& context, const StepSample& sample);
  [[nodiscard]] std::vector<RankId> ranks_of(const std::string& node) const;
  void adopt(std::shared_ptr<const solver::Plan> plan);
  void note_clocks(const WholeStep& step);
  void send_active(LoopContext& context, const std::string& node) const;

  // job_judge.cc
  void on_step(LoopContext& context, const JobStep& step);
  void learn_healthy(LoopContext& context);
  void on_verdict(LoopContext& context);
  void on_culprits(LoopContext& context, const Verdict& verdict);
  void on_moved(LoopContext& context, const std::vector<RankId>& ranks);
  void on_link_faults(LoopContext& context, const std::vector<LinkFault>& faults);
  void on_link_recovery(LoopContext& context, const std::vector<LinkFault>& faults);
  /// Of nodes whose loss begins to count, at `begin_s`.
  void begin_loss(double begin_s);
  /// Slow in any of its parts.
  [[nodiscard]] bool is_slow(const std::string& node) const;
  void on_no_culprit(LoopContext& context, const Verdict& verdict);
  void on_recovery(LoopContext& context, const std::vector<RankId>& ranks);
  /// The node's devices are well; its links may still be slow.
  void end_compute_episode(LoopContext& context, const std::string& node, std::string_view why);
  void on_input_recovery(LoopContext& context, const std::vector<RankId>& ranks);
  [[nodiscard]] std::vector<Evidence> verdict_evidence(const Verdict& verdict) const;

  // job_trial.cc
  /// Not calibrated.
  [[nodiscard]] double model_step_s(const LoopContext& context, const solver::Plan& plan) const;
  [[nodiscard]] Comparison compare(const LoopContext& context, const Trial& trial) const;
  void on_trial_step(LoopContext& context, const JobStep& step);
  /// What a trial saw until now is no longer like what comes.
  void conditions_changed();
  Trial close_trial(LoopContext& context, std::string_view verdict, const Comparison& now);
  void end_trial(LoopContext& context, std::string_view verdict, const Comparison& now);
  void roll_back(LoopContext& context, const Comparison& now);

  // job_decide.cc
  void review(LoopContext& context);
  /// Something changed that is to be decided on.
  void want_review();
  /// What is slow, or well, since about the same moment as what was told last is not told yet.
  [[nodiscard]] bool more_to_come() const;
  /// The running switch is not for all that is slow by now, and nothing has moved yet.
  [[nodiscard]] bool overtaken() const;
  void ask(LoopContext& context, Ask ask);
  [[nodiscard]] std::set<std::string> blamed_nodes() const;
  [[nodiscard]] std::string cause(const Ask& ask) const;
  void hold_recovery(LoopContext& context, double rest_s);
  [[nodiscard]] std::vector<bool> pinned(const LoopContext& context, Trigger trigger) const;
  [[nodiscard]] double cooldown_left_s(const LoopContext& context,
                                       const std::set<std::string>& nodes) const;
  /// Of the running plan while nothing is known to be slow.
  [[nodiscard]] double usual_step_s() const;
  [[nodiscard]] Circumstances circumstances(const LoopContext& context, const Ask& ask,
                                            const solver::Proposal* change) const;
  /// Of the change, or of the proposal when that is none.
  [[nodiscard]] std::vector<Evidence> proposal_evidence(const Ask& ask, const ReplanSolved& solved,
                                                        const solver::Proposal* change) const;
  void decide(LoopContext& context, const Ask& ask, const ReplanSolved& solved);
  void answer(LoopContext& context, const Ask& ask, const Choice& choice,
              const ReplanSolved& solved, std::uint64_t write);
  DecisionRow new_decision(std::string code, std::string sentence, std::vector<Evidence> evidence);
  void record(LoopContext& context, const DecisionRow& row, bool stored_elsewhere);
  void amend(LoopContext& context, std::uint64_t decision, const std::vector<Evidence>& evidence);

  // job_outlook.cc
  void count_loss(const JobStep& step);
  /// Writes down the loss so far, now and then.
  void remember_loss(LoopContext& context);
  [[nodiscard]] Rest rest_of(const LoopContext& context, const std::string& node,
                             const Slow& slow) const;
  [[nodiscard]] Rest expected_rest(const LoopContext& context) const;
  [[nodiscard]] Outlook outlook(const Ask& ask, const ReplanSolved& solved) const;
  [[nodiscard]] std::vector<Evidence> no_culprit_evidence(const LoopContext& context,
                                                          const Verdict& verdict) const;

  // job_switch.cc
  [[nodiscard]] SwitchMachine::Env env(LoopContext& context) const;
  [[nodiscard]] solver::ClusterState cluster_state(const LoopContext& context) const;
  void refresh_prediction(const LoopContext& context);
  [[nodiscard]] std::string obstacle(const LoopContext& context, const solver::Plan& plan) const;
  [[nodiscard]] std::string defect(const LoopContext& context, const solver::Plan& plan) const;
  /// Starts the switch that `decision` stands for; returns the write that makes it durable.
  std::uint64_t begin_switch(LoopContext& context, solver::Plan plan, DecisionRow decision,
                             Trial trial, const std::string& trigger,
                             std::optional<OperatorRow> operator_row);
  void on_outcome(LoopContext& context, SwitchMachine::Outcome outcome);
  void on_commit_decided(LoopContext& context);
  void on_aborted(LoopContext& context);

  const std::shared_ptr<const solver::Job> job_;
  RestoredJob restored_;  ///< until start()
  Epoch highest_epoch_;
  std::uint64_t last_decision_ = 0;

  std::shared_ptr<const solver::Plan> active_;
  std::shared_ptr<const solver::Plan> first_plan_;  ///< solved, on its way into the store
  std::uint64_t first_plan_write_ = 0;
  std::string no_plan_reason_;
  std::optional<std::chrono::nanoseconds> ask_again_at_;  ///< for the first plan, steady clock
  Roles roles_;

  std::uint64_t session_ = 0;
  std::uint64_t next_session_ = 0;  ///< seen from some ranks, not yet from most
  std::set<RankId> next_session_ranks_;
  StepWindow window_;
  Watch watch_;
  LinkWatch links_;
  DeviceMemory memory_;
  std::vector<double> clock_off_s_;  ///< per RankId
  struct StepEnd {
    std::uint64_t step = 0;
    double end_s = 0;
  };
  std::vector<StepEnd> step_ends_;  ///< per RankId, of the latest record
  double job_time_s_ = 0;           ///< end of the last plain step
  double steps_per_s_ = 0;          ///< on the steady clock, which deadlines and messages live by
  std::uint64_t paced_step_ = 0;
  std::chrono::nanoseconds paced_at_{0};

  double healthy_step_s_ = 0;
  Epoch healthy_epoch_;               ///< plan that it was learnt under
  std::uint32_t healthy_learnt_ = 0;  ///< Watch::times_learnt() then
  double calibration_ = 1.0;
  double predicted_step_s_ = 0;
  /// Step time that a cause without a culprit was told at, and that is taken for usual since; 0 =
  /// there is none.
  double accepted_step_s_ = 0;
  double bound_step_s_ = 0;

  std::string verdict_ = "no verdict yet";
  std::vector<Evidence> verdict_evidence_;
  std::map<std::string, Slow> slow_;
  std::set<std::string> recovered_nodes_;  ///< since the last switch
  /// Job time lost to slow or recovered nodes, since the running plan or their level began.
  double lost_s_ = 0;
  double lost_until_s_ = 0;  ///< job time of the last step that counted
  LossRow written_loss_;
  std::map<std::pair<std::string, std::string>, SlowLinkRow> written_links_;  ///< by their ends
  std::map<RankId, LateLoaderRow> written_late_;

  bool review_wanted_ = false;
  std::uint32_t steps_since_told_ = 0;  ///< of the change that is to be decided on
  double review_at_s_ = 0;              ///< job time; 0 = nothing to come back to
  std::string last_hold_;  ///< code and nodes of the last decision to hold, to say it once
  std::map<std::uint64_t, Ask> asks_;

  SwitchMachine switch_;
  std::uint64_t switch_decision_ = 0;
  std::optional<Trial> next_trial_;  ///< of the running switch
  std::optional<Trial> trial_;
  std::uint32_t aborted_in_a_row_ = 0;
  /// Of the switch that was given up for a wider plan; once until one is done.
  Epoch overtaken_;
  std::uint32_t margin_doublings_ = 0;
  std::deque<AutomaticSwitchRow> past_switches_;  ///< oldest first
  std::deque<DecisionRow> decisions_;             ///< newest first
};

/// Names of the nodes that hold a position in the plan.
[[nodiscard]] std::set<std::string> nodes_of(const solver::Job& job, const solver::Plan& plan);

/// Puts or replaces one piece of evidence.
void put(std::vector<Evidence>& evidence, std::string key, decltype(Evidence::value) value);

}  // namespace tapas::daemon
