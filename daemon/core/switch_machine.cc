#include "daemon/core/switch_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tapas::daemon {
namespace {

// COMMIT is repeated this often before the switch ends without the silent agents; they run the old
// plan on and get the decision at their next HELLO.
constexpr std::uint32_t kCommitRepeats = 3;

std::string_view name_of(SwitchOrder order) {
  switch (order) {
    case SwitchOrder::kPrepare:
      return "PREPARE";
    case SwitchOrder::kArm:
      return "ARM";
    case SwitchOrder::kTransfer:
      return "TRANSFER";
    case SwitchOrder::kCommit:
      return "COMMIT";
    case SwitchOrder::kAbort:
      break;
  }
  return "ABORT";
}

}  // namespace

std::string_view to_string(SwitchMachine::Stage stage) {
  switch (stage) {
    case SwitchMachine::Stage::kIdle:
      return "idle";
    case SwitchMachine::Stage::kStoring:
      return "proposed";
    case SwitchMachine::Stage::kPreparing:
      return "preparing";
    case SwitchMachine::Stage::kArming:
      return "armed";
    case SwitchMachine::Stage::kTransferring:
      return "transferring";
    case SwitchMachine::Stage::kDeciding:
      return "deciding";
    case SwitchMachine::Stage::kCommitting:
      return "committing";
    case SwitchMachine::Stage::kAborting:
      break;
  }
  return "aborting";
}

SwitchRow SwitchMachine::row(SwitchState state, const std::string& reason) const {
  return {task_.job,       task_.from ? task_.from->epoch : task_.to->parent,
          task_.to->epoch, state,
          reason,          0};
}

void SwitchMachine::enter(Stage stage, double deadline_s, const Env& env) {
  stage_ = stage;
  voted_.clear();
  repeats_ = 0;
  wait_s_ = deadline_s;
  deadline_ = env.out.now().steady + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                         std::chrono::duration<double>(deadline_s));
}

void SwitchMachine::order(SwitchOrder order, const std::string& node, const Env& env) const {
  env.out.send(node, SwitchMessage{order, task_.job, task_.term, task_.to->parent, task_.to->epoch,
                                   order == SwitchOrder::kArm ? at_step_ : 0,
                                   order == SwitchOrder::kAbort ? reason_ : std::string{}});
}

void SwitchMachine::order_all(SwitchOrder order, const Env& env) const {
  for (const std::string& node : task_.nodes) {
    if (!voted_.contains(node)) {
      this->order(order, node, env);
    }
  }
  env.out.event(
      task_.job, "switch_phase", "",
      fmt::format("switch {} -> {}: {} sent to {} agents{}", task_.to->parent, task_.to->epoch,
                  name_of(order), task_.nodes.size() - voted_.size(),
                  order == SwitchOrder::kArm ? fmt::format(", to hold after step {}", at_step_)
                                             : std::string{}),
      {{"phase", std::string(name_of(order))}});
}

std::uint64_t SwitchMachine::begin(SwitchTask task, std::vector<StoreRow> rows, const Env& env) {
  task_ = std::move(task);
  reason_.clear();
  too_late_ = false;
  lost_.clear();
  strays_.clear();
  newest_voted_ = 0;
  bytes_ = transfer_s_ = commit_s_ = 0;
  rows.emplace_back(PlanRow{task_.job, task_.to, PlanStatus::kProposed, task_.trigger, 0});
  rows.emplace_back(row(SwitchState::kRunning, task_.trigger));
  write_ = env.out.store(std::move(rows));
  enter(Stage::kStoring, env.config.prepare_deadline_s, env);
  return write_;
}

void SwitchMachine::resume(SwitchTask task, const Env& env) {
  task_ = std::move(task);
  lost_.clear();
  strays_.clear();
  bytes_ = transfer_s_ = commit_s_ = 0;
  enter(Stage::kCommitting, env.config.commit_deadline_s, env);
}

SwitchMachine::Outcome SwitchMachine::stored(const StoreDone& done, const Env& env) {
  if (write_ == 0 || done.write != write_) {
    return Outcome::kNone;
  }
  write_ = 0;
  if (stage_ == Stage::kStoring) {
    if (!done.outcome) {
      // Nothing is stored and nobody was told.
      stage_ = Stage::kIdle;
      reason_ = "the store refused the proposal: " + done.outcome.error().message;
      env.out.event(task_.job, "switch_aborted", "", reason_);
      return Outcome::kAborted;
    }
    for (const std::string& node : task_.nodes) {
      env.out.send(node, PlanMessage{task_.job, task_.term, task_.to, false});
    }
    enter(Stage::kPreparing, env.config.prepare_deadline_s, env);
    order_all(SwitchOrder::kPrepare, env);
    return Outcome::kNone;
  }
  if (!done.outcome) {
    stage_ = Stage::kTransferring;  // Not decided after all: ABORT is allowed.
    return abort("the store refused the decision: " + done.outcome.error().message, env);
  }
  enter(Stage::kCommitting, env.config.commit_deadline_s, env);
  voted_ = strays_;
  order_all(SwitchOrder::kCommit, env);
  return Outcome::kCommitDecided;
}

SwitchMachine::Outcome SwitchMachine::all_voted(const Env& env) {
  for (const std::string& node : task_.nodes) {
    if (!voted_.contains(node) && !lost_.contains(node)) {
      return Outcome::kNone;
    }
  }
  switch (stage_) {
    case Stage::kPreparing:
      at_step_ = std::max(env.newest_step, newest_voted_) + env.arm_margin;
      enter(Stage::kArming, env.config.arm_deadline_s, env);
      order_all(SwitchOrder::kArm, env);
      return Outcome::kNone;
    case Stage::kArming:
      enter(Stage::kTransferring, env.config.transfer_deadline_s, env);
      order_all(SwitchOrder::kTransfer, env);
      return Outcome::kNone;
    case Stage::kTransferring: {
      stage_ = Stage::kDeciding;
      std::vector<StoreRow> rows =
          env.decision_rows ? env.decision_rows() : std::vector<StoreRow>{};
      rows.emplace_back(row(SwitchState::kCommitDecided, task_.trigger));
      rows.emplace_back(PlanRow{task_.job, task_.to, PlanStatus::kActive, task_.trigger, 0});
      rows.emplace_back(PlanRow{task_.job, task_.from, PlanStatus::kSuperseded, "", 0});
      write_ = env.out.store(std::move(rows));
      return Outcome::kNone;
    }
    case Stage::kCommitting:
    case Stage::kAborting:
      return finish(env);
    case Stage::kIdle:
    case Stage::kStoring:
    case Stage::kDeciding:
      break;
  }
  return Outcome::kNone;
}

SwitchMachine::Outcome SwitchMachine::finish(const Env& env) {
  const bool aborted = stage_ == Stage::kAborting;
  stage_ = Stage::kIdle;
  if (aborted) {
    return Outcome::kAborted;
  }
  env.out.journal(row(SwitchState::kDone, task_.trigger));
  const std::string rest = missing();
  env.out.event(
      task_.job, "switch_done", "",
      fmt::format(
          "plan {} runs on {} agents: {:.2f} GB moved, the job stood still for {:.2f} s{}",
          task_.to->epoch, voted_.size(), bytes_ / 1e9, pause_s(),
          rest.empty() ? std::string{} : "; no word from " + rest + ", told when they say HELLO"),
      {{"bytes_moved", bytes_}, {"switch_s", pause_s()}});
  return Outcome::kDone;
}

SwitchMachine::Outcome SwitchMachine::vote(const AgentVote& vote, const Env& env, bool& known) {
  known = stage_ != Stage::kIdle && stage_ != Stage::kStoring && vote.epoch == task_.to->epoch &&
          task_.nodes.contains(vote.node);
  if (!known) {
    return Outcome::kNone;
  }
  if (stage_ == Stage::kAborting) {
    if (vote.phase == SwitchPhase::kAborted) {
      voted_.insert(vote.node);
      return all_voted(env);
    }
    return Outcome::kNone;
  }
  return decided() ? vote_after_decision(vote, env) : vote_before_decision(vote, env);
}

SwitchMachine::Outcome SwitchMachine::vote_after_decision(const AgentVote& vote, const Env& env) {
  if (vote.phase != SwitchPhase::kCommitted || stage_ != Stage::kCommitting) {
    return Outcome::kNone;
  }
  if (!vote.ok) {
    env.out.event(task_.job, "switch_phase", vote.node,
                  fmt::format("{} has trouble with COMMIT: {}; it is decided all the same",
                              vote.node, vote.reason));
  }
  commit_s_ = std::max(commit_s_, vote.seconds);
  voted_.insert(vote.node);
  return all_voted(env);
}

SwitchMachine::Outcome SwitchMachine::vote_before_decision(const AgentVote& vote, const Env& env) {
  if (vote.phase == SwitchPhase::kAborted) {
    return abort(fmt::format("{} gave the switch up: {}", vote.node, vote.reason), env);
  }
  if (!vote.ok) {
    too_late_ = vote.phase == SwitchPhase::kArmed && vote.step > at_step_;
    return abort(fmt::format("{} refuses: {}", vote.node, vote.reason), env);
  }
  const auto expected = stage_ == Stage::kPreparing ? SwitchPhase::kPrepared
                        : stage_ == Stage::kArming  ? SwitchPhase::kArmed
                                                    : SwitchPhase::kTransferred;
  if (vote.phase != expected || !voted_.insert(vote.node).second) {
    return Outcome::kNone;
  }
  newest_voted_ = std::max(newest_voted_, vote.step);
  if (expected == SwitchPhase::kTransferred) {
    bytes_ += static_cast<double>(vote.bytes);
    transfer_s_ = std::max(transfer_s_, vote.seconds);
  }
  return all_voted(env);
}

SwitchMachine::Outcome SwitchMachine::abort(const std::string& reason, const Env& env) {
  if (stage_ == Stage::kIdle || stage_ == Stage::kAborting || decided()) {
    return Outcome::kNone;
  }
  reason_ = reason;
  // Nobody waits for these rows: should they be lost, the next start aborts the switch again.
  env.out.journal(row(SwitchState::kAborted, reason));
  env.out.journal(PlanRow{task_.job, task_.to, PlanStatus::kAborted, task_.trigger, 0});
  env.out.event(task_.job, "switch_aborted", "",
                fmt::format("switch {} -> {} aborted, plan {} goes on: {}", task_.to->parent,
                            task_.to->epoch, task_.to->parent, reason));
  const bool told = stage_ != Stage::kStoring;
  write_ = 0;
  if (!told) {
    stage_ = Stage::kIdle;
    return Outcome::kAborted;
  }
  enter(Stage::kAborting, env.config.prepare_deadline_s, env);
  order_all(SwitchOrder::kAbort, env);
  return all_voted(env);
}

SwitchMachine::Outcome SwitchMachine::agent_lost(const std::string& node, const Env& env) {
  if (idle() || !task_.nodes.contains(node)) {
    return Outcome::kNone;
  }
  lost_.insert(node);
  return decided() || stage_ == Stage::kAborting
             ? all_voted(env)
             : abort(fmt::format("the agent of {} is lost", node), env);
}

SwitchMachine::Outcome SwitchMachine::hello(const std::string& node,
                                            const JobAttachment* attachment, bool restarted,
                                            const Env& env) {
  if (idle() || !task_.nodes.contains(node)) {
    return Outcome::kNone;
  }
  const Epoch pending = attachment != nullptr ? attachment->pending_epoch : Epoch{};
  const bool takes_part = pending == task_.to->epoch;
  if (stage_ == Stage::kDeciding) {
    if (!takes_part) {
      strays_.insert(node);
    }
    return Outcome::kNone;  // COMMIT or ABORT follows in a moment, to everybody.
  }
  if (stage_ == Stage::kCommitting || stage_ == Stage::kAborting) {
    if (takes_part) {
      lost_.erase(node);
      order(stage_ == Stage::kCommitting ? SwitchOrder::kCommit : SwitchOrder::kAbort, node, env);
      return Outcome::kNone;
    }
    // Either it is where it should be, or it gets the active plan as everybody who says HELLO.
    voted_.insert(node);
    return all_voted(env);
  }
  if (restarted) {
    return abort(fmt::format("the agent of {} was restarted", node), env);
  }
  const bool took_part = stage_ == Stage::kArming || stage_ == Stage::kTransferring ||
                         (stage_ == Stage::kPreparing && voted_.contains(node));
  return took_part && !takes_part ? abort(fmt::format("the ranks of {} left the switch", node), env)
                                  : Outcome::kNone;
}

std::string SwitchMachine::missing() const {
  std::vector<std::string> names;
  for (const std::string& node : task_.nodes) {
    if (!voted_.contains(node)) {
      names.push_back(node);
    }
  }
  const std::size_t more = names.size() > 4 ? names.size() - 4 : 0;
  names.resize(names.size() - more);
  return more == 0 ? fmt::format("{}", fmt::join(names, ", "))
                   : fmt::format("{} and {} more", fmt::join(names, ", "), more);
}

SwitchMachine::Outcome SwitchMachine::tick(const Env& env) {
  if (idle() || stage_ == Stage::kDeciding || env.out.now().steady < deadline_) {
    return Outcome::kNone;
  }
  if (stage_ == Stage::kAborting) {
    return finish(env);
  }
  if (stage_ == Stage::kCommitting) {
    if (++repeats_ >= kCommitRepeats) {
      return finish(env);
    }
    for (const std::string& node : task_.nodes) {
      if (!voted_.contains(node)) {
        order(SwitchOrder::kCommit, node, env);
      }
    }
    deadline_ += std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(env.config.commit_deadline_s));
    return Outcome::kNone;
  }
  return abort(
      fmt::format("no answer within {:.0f} s ({}) from {}", wait_s_, to_string(stage_), missing()),
      env);
}

}  // namespace tapas::daemon
