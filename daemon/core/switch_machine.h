#pragma once

#include "daemon/core/core.h"
#include "daemon/core/event.h"
#include "daemon/core/outbox.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tapas::daemon {

/// What a switch is about.
struct SwitchTask {
  std::string job;
  Term term;
  std::shared_ptr<const solver::Plan> from;
  std::shared_ptr<const solver::Plan> to;
  std::string trigger;          ///< of the plan row: "slow node n037"
  std::set<std::string> nodes;  ///< that hold a position in either plan
};

/// Moves a job from one epoch to the next, as a two-phase commit over the agents: PREPARE, ARM,
/// TRANSFER, then the decision made durable, then COMMIT. Before the decision anything that goes
/// wrong ends in ABORT and the old plan; after it there is only forward. Every wait has a deadline.
class SwitchMachine {
 public:
  enum class Stage : std::uint8_t {
    kIdle,
    kStoring,  ///< the proposal is on its way into the store; no agent knows of it
    kPreparing,
    kArming,
    kTransferring,
    kDeciding,  ///< the decision is on its way into the store
    kCommitting,
    kAborting,  ///< agents are told; waiting for them to confirm
  };
  /// What a call below led to.
  enum class Outcome : std::uint8_t {
    kNone,
    kCommitDecided,  ///< durable: the new plan is the active one from now on
    kDone,
    kAborted,
  };
  struct Env {
    const CoreConfig& config;
    Outbox& out;
    std::uint64_t newest_step = 0;  ///< last step seen of the job
    std::uint64_t arm_margin = 2;   ///< ARM names a step this far ahead, so that no agent passed it
    /// What becomes true with the decision, and is durable with it.
    std::function<std::vector<StoreRow>()> decision_rows = {};
  };

  /// `rows` (the decision) are stored in one transaction with the proposal. Requires idle.
  /// Returns the number of that write.
  std::uint64_t begin(SwitchTask task, std::vector<StoreRow> rows, const Env& env);
  /// After a restart: the decision is in the store, some agents may not know. Requires idle.
  void resume(SwitchTask task, const Env& env);

  [[nodiscard]] Outcome stored(const StoreDone& done, const Env& env);
  /// `known` is set false for a vote that belongs to no running switch.
  [[nodiscard]] Outcome vote(const AgentVote& vote, const Env& env, bool& known);
  [[nodiscard]] Outcome agent_lost(const std::string& node, const Env& env);
  /// `attachment` is null when the node has no ranks of the job.
  [[nodiscard]] Outcome hello(const std::string& node, const JobAttachment* attachment,
                              bool restarted, const Env& env);
  [[nodiscard]] Outcome tick(const Env& env);
  /// Gives up a switch that is not decided; nothing when there is none.
  [[nodiscard]] Outcome abort(const std::string& reason, const Env& env);

  [[nodiscard]] bool idle() const { return stage_ == Stage::kIdle; }
  [[nodiscard]] Stage stage() const { return stage_; }
  /// Of the running or last switch.
  [[nodiscard]] const SwitchTask& task() const { return task_; }
  /// Nodes whose ranks left the switch while its decision was on the way into the store. They get
  /// the active plan instead of COMMIT.
  [[nodiscard]] const std::set<std::string>& strays() const { return strays_; }
  [[nodiscard]] const std::string& abort_reason() const { return reason_; }
  /// An agent had passed the step that ARM named: the margin was too small.
  [[nodiscard]] bool armed_too_late() const { return too_late_; }
  [[nodiscard]] double bytes() const { return bytes_; }
  /// Job time from the held step to the new plan, as the slowest agents report it.
  [[nodiscard]] double pause_s() const { return transfer_s_ + commit_s_; }

 private:
  [[nodiscard]] bool decided() const {
    return stage_ == Stage::kDeciding || stage_ == Stage::kCommitting;
  }
  void enter(Stage stage, double deadline_s, const Env& env);
  void order(SwitchOrder order, const std::string& node, const Env& env) const;
  void order_all(SwitchOrder order, const Env& env) const;
  Outcome all_voted(const Env& env);
  Outcome finish(const Env& env);
  Outcome vote_after_decision(const AgentVote& vote, const Env& env);
  Outcome vote_before_decision(const AgentVote& vote, const Env& env);
  [[nodiscard]] std::string missing() const;
  [[nodiscard]] SwitchRow row(SwitchState state, const std::string& reason) const;

  SwitchTask task_;
  Stage stage_ = Stage::kIdle;
  std::set<std::string> voted_;
  std::set<std::string> lost_;  ///< gave up waiting for them; they are told at their next HELLO
  std::set<std::string> strays_;
  std::chrono::nanoseconds deadline_{0};
  std::uint32_t repeats_ = 0;
  std::uint64_t write_ = 0;
  double wait_s_ = 0;               ///< of the present stage
  std::uint64_t newest_voted_ = 0;  ///< last step that an agent reported with its vote
  std::uint64_t at_step_ = 0;
  std::string reason_;
  bool too_late_ = false;
  double bytes_ = 0;
  double transfer_s_ = 0;
  double commit_s_ = 0;
};

std::string_view to_string(SwitchMachine::Stage stage);

}  // namespace tapas::daemon
