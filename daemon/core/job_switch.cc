#include "daemon/core/job_loop.h"
#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapas::daemon {
namespace {

// Agents are told within this; records take as long, too. ARM names a step beyond it.
constexpr double kMessageS = 0.25;
constexpr std::uint64_t kMarginSteps = 2;
constexpr std::uint64_t kMaxMarginSteps = 1000;
constexpr double kRetryS = 30.0;

/// The node holds the same layers at the same places in both plans.
bool same_work(const solver::Plan& a, const solver::Plan& b, NodeId node) {
  if (a.replicas() != b.replicas() || a.stages() != b.stages()) {
    return false;
  }
  const auto bounds = [](const solver::Plan& plan, std::uint32_t replica, std::uint32_t stage) {
    const std::vector<std::uint32_t>& splits = plan.splits_of(replica);
    return std::pair(splits[stage], stage + 1 < splits.size() ? splits[stage + 1] : 0);
  };
  for (std::uint32_t r = 0; r < a.replicas(); ++r) {
    for (std::uint32_t s = 0; s < a.stages(); ++s) {
      const bool here = a.placement[r][s].node == node || b.placement[r][s].node == node;
      if (here && (a.placement[r][s] != b.placement[r][s] || bounds(a, r, s) != bounds(b, r, s))) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::set<std::string> nodes_of(const solver::Job& job, const solver::Plan& plan) {
  std::set<std::string> nodes;
  for (const auto& replica : plan.placement) {
    for (const solver::Position& position : replica) {
      nodes.insert(job.cluster.nodes[position.node.value()].name);
    }
  }
  return nodes;
}

SwitchMachine::Env JobLoop::env(LoopContext& context) const {
  const auto on_the_way = static_cast<std::uint64_t>(std::ceil(steps_per_s_ * kMessageS));
  const std::uint64_t margin = (kMarginSteps + on_the_way) << margin_doublings_;
  return {context.config, context.out, window_.newest(), std::min(margin, kMaxMarginSteps),
          [this] { return decision_rows(); }};
}

solver::ClusterState JobLoop::cluster_state(const LoopContext& context) const {
  solver::ClusterState state;
  state.device_slowdown = watch_.slowdowns();
  links_.add_to(state);
  state.drained.assign(job_->cluster.nodes.size(), false);
  for (const auto& [node, row] : context.nodes) {
    if (const auto id = job_->cluster.find(node); id && row.drained) {
      state.drained[id->value()] = true;
    }
  }
  return state;
}

void JobLoop::refresh_prediction(const LoopContext& context) {
  predicted_step_s_ =
      solver::predict(*job_, *active_, cluster_state(context)).step_time_s * calibration_;
  bound_step_s_ = active_->predicted.lower_bound_s * calibration_;
}

std::string JobLoop::obstacle(const LoopContext& context, const solver::Plan& plan) const {
  if (!switch_.idle()) {
    return "another switch is under way";
  }
  if (window_.newest() == 0) {
    return "the job has not reported a step yet";
  }
  std::set<std::string> nodes = roles_.nodes();
  nodes.merge(nodes_of(*job_, plan));
  std::vector<std::string> away;
  for (const std::string& node : nodes) {
    if (!context.registry.attached(node, job_->name)) {
      away.push_back(node);
    }
  }
  return away.empty() ? std::string{}
                      : fmt::format("{} of {} agents are away, the first is {}", away.size(),
                                    nodes.size(), away.front());
}

std::string JobLoop::defect(const LoopContext& context, const solver::Plan& plan) const {
  if (const auto valid = solver::check_plan(*job_, plan); !valid) {
    return valid.error().message;
  }
  if (const auto violations = solver::switch_violations(*job_, *active_, plan);
      !violations.empty()) {
    return fmt::format("the running job cannot switch to it: {}", fmt::join(violations, "; "));
  }
  for (const auto& [node, state] : context.nodes) {
    if (const auto id = job_->cluster.find(node);
        id && state.pinned && !same_work(*active_, plan, *id)) {
      return fmt::format("it changes the layers of node {}, which is pinned: {}", node,
                         state.pin_reason);
    }
  }
  const std::set<std::string> before = roles_.nodes();
  for (const std::string& node : nodes_of(*job_, plan)) {
    const auto state = context.nodes.find(node);
    if (state != context.nodes.end() && state->second.drained && !before.contains(node)) {
      return fmt::format("it uses node {}, which is drained: {}", node, state->second.reason);
    }
  }
  return {};
}

std::uint64_t JobLoop::begin_switch(LoopContext& context, solver::Plan plan, DecisionRow decision,
                                    Trial trial, const std::string& trigger,
                                    std::optional<OperatorRow> operator_row) {
  plan.job = job_->name;
  plan.parent = active_->epoch;
  plan.epoch = highest_epoch_ = Epoch(highest_epoch_.value() + 1);
  decision.epoch = plan.epoch;
  trial.old = active_;
  trial.row.job = job_->name;
  trial.row.epoch = plan.epoch;
  trial.row.before_s = watch_.recent_step_s();
  trial.row.before_model_s = model_step_s(context, *active_);
  trial.row.open = trial.row.decision != 0;
  SwitchTask task{job_->name, context.term,
                  active_,    std::make_shared<const solver::Plan>(std::move(plan)),
                  trigger,    roles_.nodes()};
  task.nodes.merge(nodes_of(*job_, *task.to));
  record(context, decision, true);
  switch_decision_ = decision.decision;
  std::vector<StoreRow> rows{decisions_.front(), trial.row};
  next_trial_ = std::move(trial);
  if (operator_row) {
    rows.emplace_back(std::move(*operator_row));
  }
  return switch_.begin(std::move(task), std::move(rows), env(context));
}

void JobLoop::on_outcome(LoopContext& context, SwitchMachine::Outcome outcome) {
  switch (outcome) {
    case SwitchMachine::Outcome::kNone:
      return;
    case SwitchMachine::Outcome::kCommitDecided:
      on_commit_decided(context);
      return;
    case SwitchMachine::Outcome::kDone:
      if (switch_decision_ != 0) {
        amend(context, switch_decision_,
              {{"switch_s", switch_.pause_s()}, {"bytes_moved", switch_.bytes()}});
      }
      switch_decision_ = 0;
      return;
    case SwitchMachine::Outcome::kAborted:
      on_aborted(context);
      return;
  }
}

void JobLoop::on_commit_decided(LoopContext& context) {
  adopt(switch_.task().to);
  plan_changed(context, made_for_now());
  aborted_in_a_row_ = margin_doublings_ = 0;
  overtaken_ = Epoch();
  review_at_s_ = 0;
  if (next_trial_) {
    if (next_trial_->row.may_roll_back) {
      note_switch(context, next_trial_->row.nodes);
    }
    if (next_trial_->row.open) {
      trial_ = std::move(next_trial_);
    } else {
      review_wanted_ = true;  // The cause is still there: asked again when the quarantine ends.
    }
    next_trial_.reset();
  }
  last_hold_.clear();
  lost_s_ = 0;
  remember_loss(context);
  refresh_prediction(context);
  context.out.event(job_->name, "plan_active", "",
                    fmt::format("plan {} of job {} is active ({})", active_->epoch, job_->name,
                                switch_.task().trigger));
  // Idle devices run the job, too: they must know the plan they would start a switch from.
  for (const auto& [node, agent] : context.registry.agents()) {
    const bool told = switch_.task().nodes.contains(node) && !switch_.strays().contains(node);
    if (!told && context.registry.attached(node, job_->name)) {
      send_active(context, node);
    }
  }
}

void JobLoop::on_aborted(LoopContext& context) {
  for (const std::string& node : switch_.strays()) {
    send_active(context, node);
  }
  if (switch_decision_ != 0) {
    amend(context, switch_decision_,
          {{"switch", "aborted: " + switch_.abort_reason()}, {"verify", "aborted"}});
  }
  const bool automatic = next_trial_ && next_trial_->row.may_roll_back;
  switch_decision_ = 0;
  next_trial_.reset();
  if (!automatic) {
    return;
  }
  if (switch_.task().to->epoch == overtaken_) {
    review_wanted_ = true;
    return;
  }
  if (switch_.armed_too_late() && margin_doublings_ < 8) {
    ++margin_doublings_;
    review_wanted_ = true;
    return;
  }
  aborted_in_a_row_ = std::min(aborted_in_a_row_ + 1, 6U);
  review_at_s_ = job_time_s_ + kRetryS * std::pow(2.0, aborted_in_a_row_ - 1.0);
}

}  // namespace tapas::daemon
