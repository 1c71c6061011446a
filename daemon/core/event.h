#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "daemon/core/core_config.h"
#include "solver/model/plan.h"
#include "solver/replan/micro_replan.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

/// What the core is told (Event) and what it wants done (Action). Plain values: the adapters in
/// net/, store/, control/ and main.cc turn bytes into events and actions into bytes.
namespace tapas::daemon {

/// Both clocks, read by the caller. `steady` drives deadlines, `wall_ns` (since 1970) is written
/// into the journal. Job time (StepSample::end_time_s) is a third clock, the job's own.
struct Now {
  std::chrono::nanoseconds steady{0};
  std::int64_t wall_ns = 0;
};

// ---------------------------------------------------------------- events

struct RankAttachment {
  RankId rank;
  std::string device_uuid;
  std::uint32_t pid = 0;
};
struct JobAttachment {
  std::string job;
  std::uint64_t session = 0;
  Epoch epoch;
  Epoch pending_epoch;
  std::vector<RankAttachment> ranks;
};
/// `node` is always the name that belongs to the peer's key, never a claim of the message.
struct AgentHello {
  std::string node;
  std::uint64_t nonce = 0;
  Term term;  ///< highest the agent has seen
  std::vector<JobAttachment> jobs;
};
struct AgentHeartbeat {
  std::string node;
  std::uint64_t records_sent = 0;
  std::uint64_t records_dropped = 0;
};

/// Something that is wrong with a node's hardware, or looks so, in its agent's words.
struct NodeFinding {
  std::string device;
  std::string kind;
  std::string text;
  friend bool operator==(const NodeFinding&, const NodeFinding&) = default;
};
/// All that is wrong with the node now.
struct AgentFindings {
  std::string node;
  std::vector<NodeFinding> findings;
};

/// A StepRecord in seconds. `job` and `node` stay hashes: the core compares them with its own.
struct StepSample {
  std::uint64_t job = 0;
  std::uint64_t session = 0;
  std::uint64_t node = 0;
  RankId rank;
  Epoch epoch;
  std::uint64_t step = 0;
  double end_time_s = 0;
  std::uint32_t flags = 0;  ///< wire::StepFlag bits; any set bit = not a plain training step
  std::uint32_t microbatches = 0;
  double wall_s = 0;
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  double tp_collective_s = 0;
  double pp_wait_s = 0;
  double pp_transfer_s = 0;
  double dp_collective_s = 0;
  double input_wait_s = 0;        ///< for the next batch; 0 = none, or not given
  std::uint32_t work_tokens = 0;  ///< of all its microbatches; 0 = not given
};
/// One directed link over an interval, as its sender saw it.
struct LinkSample {
  std::uint64_t job = 0;
  std::uint64_t session = 0;
  std::uint64_t destination = 0;  ///< name hash of the receiving node
  RankId rank;                    ///< sender
  RankId peer;                    ///< receiver
  double end_time_s = 0;
  double bytes = 0;
  double transfer_s = 0;  ///< without waiting
};
struct StepBatch {
  std::string node;
  std::vector<StepSample> samples;
  std::vector<LinkSample> links = {};
};

/// The phases of a switch, in order; kAborted answers ABORT.
enum class SwitchPhase : std::uint8_t { kPrepared, kArmed, kTransferred, kCommitted, kAborted };
struct AgentVote {
  std::string node;
  std::string job;
  Epoch epoch;
  SwitchPhase phase = SwitchPhase::kPrepared;
  bool ok = true;
  std::string reason;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< job time
};

/// Answers to RequestPlan and RequestReplan.
struct PlanSolved {
  std::string job;
  Result<solver::Plan> plan;
  std::string summary;
  double solve_s = 0;
};
struct ReplanSolved {
  std::string job;
  std::uint64_t request = 0;
  Result<solver::Proposal> proposal;
  double solve_s = 0;
  std::vector<solver::Proposal> lesser = {};  ///< that change less: see answers.h
};

/// Answer to a StoreWrite: the rows are durable, or they are not in the store at all.
struct StoreDone {
  std::uint64_t write = 0;
  Result<void> outcome;
};

struct Drain {
  std::string node;
  std::string reason;  ///< never empty
};
struct Undrain {
  std::string node;
};
/// The node keeps its stages and layers, and gets none, until it is unpinned.
struct Pin {
  std::string node;
  std::string reason;  ///< never empty
};
struct Unpin {
  std::string node;
};
/// Recompute and switch, or show what would happen.
struct Replan {
  std::string job;
  bool dry_run = false;
};
struct SetAuto {
  bool on = false;
  std::string reason;
};
/// A mutation by an operator; answered by one OperatorReply with the same request number.
struct OperatorCommand {
  std::uint64_t request = 0;
  std::string who;  ///< "uid 1000 (alice)"
  std::variant<Drain, Undrain, Pin, Unpin, Replan, SetAuto> verb;
};

/// The configuration was read again.
struct Reconfigured {
  CoreConfig config;
  std::string changes;  ///< one sentence with old and new values; empty = none of the core's
};

/// At least four times a second.
struct Tick {};

using Event =
    std::variant<AgentHello, AgentHeartbeat, AgentFindings, StepBatch, AgentVote, PlanSolved,
                 ReplanSolved, StoreDone, OperatorCommand, Reconfigured, Tick>;

// ---------------------------------------------------------------- store rows

/// One of the things that could be done, in job time over the expected rest of the condition.
struct AnswerPrice {
  std::string answer;  ///< "wait", "microbatches", "layers", "nodes", "spare", ...
  double step_s = 0;
  double cost_s = 0;  ///< pause and transfer
  double loss_s = 0;  ///< lost by then, the cost in it
  bool chosen = false;
  std::string note;  ///< may be empty
};

/// One named number or text behind a verdict or decision.
struct Evidence {
  std::string key;  ///< unit in the name: "step_after_s"
  std::variant<double, std::int64_t, std::string, std::vector<AnswerPrice>> value;
};

enum class PlanStatus : std::uint8_t { kProposed, kActive, kSuperseded, kAborted };
struct PlanRow {
  std::string job;
  std::shared_ptr<const solver::Plan> plan;
  PlanStatus status = PlanStatus::kProposed;
  std::string trigger;  ///< "offline", "slow node n037", "operator uid 0", "recovery"
  std::int64_t wall_ns = 0;
};
/// Why something was done or left alone. What `tapasctl explain` shows.
struct DecisionRow {
  std::string job;
  std::uint64_t decision = 0;  ///< per job, from 1
  Epoch epoch;                 ///< plan it led to, or the one it left in place
  std::string reason_code;     ///< "micro_replan", "gain_too_small", "observe_only", ...
  std::string sentence;
  std::vector<Evidence> evidence;
  std::int64_t wall_ns = 0;
};
/// What a decision led to: joins its evidence, in place of what has the same keys there.
struct DecisionAmendment {
  std::string job;
  std::uint64_t decision = 0;
  std::vector<Evidence> evidence;
  std::int64_t wall_ns = 0;
};
/// State of a switch; one row per (job, epoch), overwritten. `committed` is the durable decision:
/// it is in the store before any agent hears COMMIT.
enum class SwitchState : std::uint8_t { kRunning, kCommitDecided, kDone, kAborted };
struct SwitchRow {
  std::string job;
  Epoch from;
  Epoch to;
  SwitchState state = SwitchState::kRunning;
  std::string reason;
  std::int64_t wall_ns = 0;
};
/// One line of the journal, `tapasctl events`.
struct EventRow {
  std::string job;  ///< may be empty
  std::string
      kind;  ///< "plan_active", "agent_connected", "verdict", "decision", "switch_phase", ...
  std::string node;  ///< may be empty
  std::string sentence;
  std::vector<Evidence> evidence;
  std::int64_t wall_ns = 0;
};
struct OperatorRow {
  std::string who;
  std::string action;  ///< "node drain n037"
  std::string reason;
  std::string outcome;
  std::int64_t wall_ns = 0;
};
struct NodeStateRow {
  std::string node;
  bool drained = false;
  std::string reason;  ///< of the drain
  std::int64_t wall_ns = 0;
  bool pinned = false;
  std::string pin_reason = {};
};
/// What is held against a device; one row per (job, device), overwritten. Times are job time.
struct DeviceRow {
  std::string job;
  std::string device;  ///< its UUID; "node/index" while that is not known
  std::string node;    ///< where it was seen last
  std::uint32_t index = 0;
  bool slow = false;
  double slowdown = 1;         ///< of the present or last episode
  double since_s = 0;          ///< its begin
  double until_s = 0;          ///< end of the last one that is over
  std::uint32_t episodes = 0;  ///< in a row, with little time between them; 0 = nothing is held
  double slow_s = 0;           ///< that those of them lasted that are over
  double planned_at = 0;       ///< slowdown that the running plan was made for; 0 = none
  std::int64_t wall_ns = 0;
};
/// What was learnt of a job while it was healthy.
struct LearntRow {
  std::string job;
  double healthy_step_s = 0;
  Epoch healthy_epoch;
  double calibration = 1;  ///< observed over predicted step time
  std::int64_t wall_ns = 0;
};
/// A switch that nobody ordered: counts for cooldown and budget; an idea that made things worse.
struct AutomaticSwitchRow {
  std::string job;
  Epoch epoch;                     ///< that it led to
  double time_s = 0;               ///< job time
  std::vector<std::string> nodes;  ///< that were its reason, sorted
  double rests_until_s = 0;        ///< rolled back: not tried again before; 0 = was not
  std::int64_t wall_ns = 0;
};
/// The trial of the plan that the latest switch leads to; one row per job, overwritten. Written
/// with the decision, so it means nothing where another plan is active.
struct TrialRow {
  std::string job;
  Epoch epoch;                     ///< on trial
  std::uint64_t decision = 0;      ///< that it is the outcome of
  std::vector<std::string> nodes;  ///< the switch was for, sorted
  double before_s = 0;             ///< of a step under the plan before, as observed
  double before_model_s = 0;       ///< what the model said of that, not calibrated
  bool may_roll_back = false;
  bool open = false;
  std::int64_t wall_ns = 0;
};
/// Job time lost since the running plan or the level of what is slow began; one row per job,
/// overwritten.
struct LossRow {
  std::string job;
  double lost_s = 0;
  double until_s = 0;  ///< job time of the last step that counted
  std::int64_t wall_ns = 0;
};
/// A directed link between nodes that is slow; one row per (job, from, to), overwritten.
struct SlowLinkRow {
  std::string job;
  std::string from;
  std::string to;
  std::string part;      ///< that makes it slow: "send", "receive" or "path"
  double slowdown = 1;   ///< 1 = it is well again
  double before_s = 0;   ///< of a byte
  double since_s = 0;    ///< job time
  bool planned = false;  ///< the running plan was made for it
  std::int64_t wall_ns = 0;
};
/// A rank whose data loader is late; one row per (job, node, index), overwritten. Ends with the
/// processes: means nothing in another session.
struct LateLoaderRow {
  std::string job;
  std::string node;
  std::uint32_t index = 0;  ///< of the rank's device on the node
  std::uint64_t session = 0;
  double before = 1;    ///< times as long a step took for what the rank waited while it was well
  double slowdown = 1;  ///< against that; 1 = it has its batches in time again
  std::int64_t wall_ns = 0;
};
using StoreRow = std::variant<PlanRow, DecisionRow, DecisionAmendment, SwitchRow, EventRow,
                              OperatorRow, NodeStateRow, DeviceRow, LearntRow, AutomaticSwitchRow,
                              TrialRow, LossRow, SlowLinkRow, LateLoaderRow>;

// ---------------------------------------------------------------- actions

struct WelcomeMessage {
  Term term;
  double heartbeat_s = 1;
};
struct RejectMessage {
  std::string reason;
  double retry_after_s = 0;
};
struct HeartbeatAckMessage {
  Term term;
};
/// The adapter encodes and chunks the plan (once per plan, not per node).
struct PlanMessage {
  std::string job;
  Term term;
  std::shared_ptr<const solver::Plan> plan;
  bool active = false;
};
enum class SwitchOrder : std::uint8_t { kPrepare, kArm, kTransfer, kCommit, kAbort };
struct SwitchMessage {
  SwitchOrder order = SwitchOrder::kPrepare;
  std::string job;
  Term term;
  Epoch from;
  Epoch to;
  std::uint64_t at_step = 0;
  std::string reason;
};
struct SendToAgent {
  std::string node;
  std::variant<WelcomeMessage, RejectMessage, HeartbeatAckMessage, PlanMessage, SwitchMessage>
      message;
};
/// Find a plan for a job that has none, on the solver thread.
struct RequestPlan {
  std::string job;
};
struct RequestReplan {
  std::string job;
  std::uint64_t request = 0;
  solver::ReplanRequest problem;
};
/// All rows in one transaction. `write` 0 = nobody waits for it (journal lines, group-committed).
struct StoreWrite {
  std::uint64_t write = 0;
  std::vector<StoreRow> rows;
};
struct OperatorReply {
  std::uint64_t request = 0;
  Result<std::string> outcome;                       ///< one sentence
  std::shared_ptr<const solver::Proposal> proposal;  ///< of Replan, may be null
};
/// A rejected input from a peer: counted by reason and logged with a rate limit.
struct RejectedInput {
  std::string node;
  std::string reason;  ///< short fixed word, used as a metric label: "unknown_rank"
  std::string sentence;
};

using Action =
    std::variant<SendToAgent, RequestPlan, RequestReplan, StoreWrite, OperatorReply, RejectedInput>;

}  // namespace tapas::daemon
