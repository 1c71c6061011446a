#include "daemon/core/job_loop.h"
#include "solver/check/check_plan.h"
#include "solver/cost/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr std::size_t kKeptDecisions = 64;
constexpr double kHourS = 3600.0;
// Agents are told within this; records take as long, too. ARM names a step beyond it.
constexpr double kMessageS = 0.25;
constexpr std::uint64_t kMarginSteps = 2;
constexpr std::uint64_t kMaxMarginSteps = 1000;
constexpr double kRetryS = 30.0;

std::set<std::string> nodes_of(const solver::Job& job, const solver::Plan& plan) {
  std::set<std::string> nodes;
  for (const auto& replica : plan.placement) {
    for (const solver::Position& position : replica) {
      nodes.insert(job.cluster.nodes[position.node.value()].name);
    }
  }
  return nodes;
}

double bytes_of(const std::vector<solver::LayerMove>& moves) {
  double bytes = 0;
  for (const solver::LayerMove& move : moves) {
    bytes += move.bytes;
  }
  return bytes;
}

}  // namespace

SwitchMachine::Env JobLoop::env(LoopContext& context) const {
  const auto on_the_way = static_cast<std::uint64_t>(std::ceil(steps_per_s_ * kMessageS));
  const std::uint64_t margin = (kMarginSteps + on_the_way) << margin_doublings_;
  return {context.config, context.out, window_.newest(), std::min(margin, kMaxMarginSteps)};
}

solver::ClusterState JobLoop::cluster_state(const LoopContext& context) const {
  solver::ClusterState state;
  state.device_slowdown = watch_.slowdowns();
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

std::set<std::string> JobLoop::blamed_nodes() const {
  std::set<std::string> nodes;
  for (const auto& [node, since] : slow_since_s_) {
    nodes.insert(node);
  }
  return nodes;
}

void JobLoop::review(LoopContext& context) {
  review_at_s_ = 0;
  const bool asked = std::any_of(asks_.begin(), asks_.end(), [](const auto& entry) {
    return entry.second.operator_request == 0;
  });
  if (!switch_.idle() || trial_ || asked) {
    review_wanted_ = true;  // Once that is over.
    return;
  }
  review_wanted_ = false;
  if (slow_since_s_.empty() && recovered_nodes_.empty()) {
    return;
  }
  ask(context,
      {slow_since_s_.empty() ? Trigger::kRecovery : Trigger::kCulprit, {}, 0, {}, false, {}});
}

void JobLoop::ask(LoopContext& context, Ask ask) {
  ask.base = active_->epoch;
  double age_s = 0;
  for (const auto& [node, since] : slow_since_s_) {
    age_s = std::max(age_s, job_time_s_ - since);
  }
  const std::uint64_t request = ++context.last_request;
  context.out.add(
      RequestReplan{job_->name,
                    request,
                    {*active_, cluster_state(context),
                     expected_rest_s(context.config.episode_prior_s, age_s), calibration_}});
  asks_[request] = std::move(ask);
}

std::string JobLoop::cause(const Ask& ask) const {
  switch (ask.trigger) {
    case Trigger::kOperator:
      return fmt::format("{} asked for a replan", ask.who);
    case Trigger::kDrain:
      return fmt::format("node {} is drained", ask.drained);
    case Trigger::kRecovery:
      return fmt::format("node {} is healthy again", fmt::join(recovered_nodes_, ", "));
    case Trigger::kCulprit:
      break;
  }
  std::vector<std::string> parts;
  for (const auto& [node, since] : slow_since_s_) {
    parts.push_back(
        fmt::format("node {} computes {:.2f} times as long as its equals", node, slowdown(node)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
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
  const std::set<std::string> before = roles_.nodes();
  for (const std::string& node : nodes_of(*job_, plan)) {
    const auto state = context.nodes.find(node);
    if (state != context.nodes.end() && state->second.drained && !before.contains(node)) {
      return fmt::format("it uses node {}, which is drained: {}", node, state->second.reason);
    }
  }
  return {};
}

std::size_t JobLoop::recent_switches(const std::set<std::string>& nodes) const {
  return static_cast<std::size_t>(
      std::count_if(past_switches_.begin(), past_switches_.end(), [&](const PastSwitch& past) {
        return past.time_s > job_time_s_ - kHourS &&
               std::any_of(nodes.begin(), nodes.end(),
                           [&](const std::string& node) { return past.nodes.contains(node); });
      }));
}

double JobLoop::cooldown_left_s(const LoopContext& context,
                                const std::set<std::string>& nodes) const {
  if (past_switches_.empty()) {
    return 0;
  }
  const std::size_t times = std::max<std::size_t>(recent_switches(nodes), 1);
  return past_switches_.back().time_s + cooldown_s(context.config, times) - job_time_s_;
}

Circumstances JobLoop::circumstances(const LoopContext& context, const Ask& ask,
                                     const Result<solver::Proposal>& proposal) const {
  Circumstances out;
  out.trigger = ask.trigger;
  out.cause = cause(ask);
  out.auto_replan = context.auto_mode.on;
  out.auto_reason = context.auto_mode.reason;
  std::set<std::string> nodes = blamed_nodes();
  nodes.insert(recovered_nodes_.begin(), recovered_nodes_.end());
  out.cooldown_left_s = cooldown_left_s(context, nodes);
  const auto within_hour =
      std::count_if(past_switches_.begin(), past_switches_.end(),
                    [this](const PastSwitch& past) { return past.time_s > job_time_s_ - kHourS; });
  out.budget_left = within_hour < static_cast<std::ptrdiff_t>(context.config.replans_per_hour);
  if (const auto found = quarantine_.find(nodes); found != quarantine_.end()) {
    out.quarantine_left_s = found->second.until_s - job_time_s_;
  }
  if (proposal && proposal->improves) {
    out.obstacle = obstacle(context, proposal->plan);
    out.defect = defect(context, proposal->plan);
    if (out.defect.empty() && nodes_of(*job_, proposal->plan).contains(ask.drained)) {
      out.defect = "the best plan found still needs the node, there is no free spare for it";
    }
  }
  return out;
}

std::vector<Evidence> JobLoop::proposal_evidence(const LoopContext& context, const Ask& ask,
                                                 const ReplanSolved& solved) const {
  std::vector<Evidence> evidence;
  if (ask.trigger == Trigger::kCulprit || ask.trigger == Trigger::kRecovery) {
    evidence = verdict_evidence_;
  } else if (!ask.drained.empty()) {
    put(evidence, "node", ask.drained);
  }
  put(evidence, "predicted_step_s", predicted_step_s_);
  put(evidence, "solve_s", solved.solve_s);
  double age_s = 0;
  for (const auto& [node, since] : slow_since_s_) {
    age_s = std::max(age_s, job_time_s_ - since);
  }
  put(evidence, "expected_episode_s", expected_rest_s(context.config.episode_prior_s, age_s));
  if (solved.proposal) {
    const solver::Proposal& proposal = *solved.proposal;
    put(evidence, "step_before_s", proposal.step_before_s);
    put(evidence, "step_after_s", proposal.step_after_s);
    put(evidence, "lower_bound_s", proposal.lower_bound_s);
    if (proposal.lower_bound_s > 0) {
      put(evidence, "after_over_bound_ratio", proposal.step_after_s / proposal.lower_bound_s);
    }
    put(evidence, "net_gain_s", proposal.net_gain_s);
    put(evidence, "switch_cost_s", proposal.switch_s);
    put(evidence, "layers_moved", static_cast<std::int64_t>(proposal.moves.size()));
    put(evidence, "bytes_moved", bytes_of(proposal.moves));
    put(evidence, "plans_evaluated", static_cast<std::int64_t>(proposal.plans_evaluated));
  }
  return evidence;
}

void JobLoop::replan_solved(LoopContext& context, const ReplanSolved& solved) {
  const auto found = asks_.find(solved.request);
  if (found == asks_.end()) {
    return;
  }
  const Ask ask = std::move(asks_.extract(found).mapped());
  if (ask.base != active_->epoch) {
    const std::string moved = fmt::format("job {} went from plan {} to {} meanwhile; try again",
                                          job_->name, ask.base, active_->epoch);
    if (ask.trigger == Trigger::kDrain) {
      context.drain_answers.emplace_back(ask.operator_request, moved);
    } else if (ask.operator_request != 0) {
      context.out.add(
          OperatorReply{ask.operator_request, fail(ErrorCode::kConflict, "{}", moved), nullptr});
    } else {
      review_wanted_ = true;
    }
    return;
  }
  if (ask.dry_run) {
    Result<std::string> outcome = std::string{};
    if (!solved.proposal) {
      outcome = fail_in("no new plan", solved.proposal.error());
    } else {
      const std::string trouble =
          solved.proposal->improves ? defect(context, solved.proposal->plan) : std::string{};
      outcome =
          trouble.empty() ? solved.proposal->reason : "this plan would be refused: " + trouble;
    }
    context.out.add(OperatorReply{
        ask.operator_request, std::move(outcome),
        solved.proposal ? std::make_shared<const solver::Proposal>(*solved.proposal) : nullptr});
    return;
  }
  decide(context, ask, solved);
}

void JobLoop::decide(LoopContext& context, const Ask& ask, const ReplanSolved& solved) {
  const Choice choice =
      weigh(context.config, circumstances(context, ask, solved.proposal), solved.proposal);
  if (solved.proposal && solved.proposal->lower_bound_s > 0) {
    bound_step_s_ = solved.proposal->lower_bound_s;
  }
  const bool automatic = ask.operator_request == 0;
  std::set<std::string> nodes = blamed_nodes();
  nodes.insert(recovered_nodes_.begin(), recovered_nodes_.end());
  const std::string hold = fmt::format("{} {}", choice.code, fmt::join(nodes, " "));
  if (automatic && !choice.act) {
    // Asked again later, rarer each time the answer stays the same; said only once.
    const double wait = choice.retry_after_s * (last_hold_ == hold ? 4 : 1);
    review_at_s_ = job_time_s_ + wait;
    if (choice.code == "no_better_plan" && slow_since_s_.empty()) {
      recovered_nodes_.clear();
      review_at_s_ = 0;
    }
    if (std::exchange(last_hold_, hold) == hold) {
      return;
    }
  }
  DecisionRow row =
      new_decision(choice.code, choice.sentence, proposal_evidence(context, ask, solved));
  if (!choice.act) {
    record(context, row, false);
    answer(context, ask, choice, solved, 0);
    return;
  }
  put(row.evidence, "verify", "pending");
  const solver::Proposal& proposal = *solved.proposal;
  Trial trial;
  trial.decision = row.decision;
  trial.nodes = std::move(nodes);
  trial.promised_s = proposal.step_after_s;
  trial.may_roll_back = automatic;
  std::optional<OperatorRow> operator_row;
  if (ask.trigger == Trigger::kOperator) {
    operator_row = OperatorRow{ask.who, "replan " + job_->name, "", choice.sentence, 0};
  }
  const std::string trigger = ask.trigger == Trigger::kCulprit
                                  ? fmt::format("slow node {}", fmt::join(blamed_nodes(), ", "))
                              : ask.trigger == Trigger::kRecovery ? std::string("recovery")
                              : ask.trigger == Trigger::kDrain    ? "drain " + ask.drained
                                                                  : "operator " + ask.who;
  context.out.event(job_->name, "replan_proposed", "",
                    fmt::format("new plan in {:.1f} ms: {} layers to move, {:.3f} s instead of "
                                "{:.3f} s a step",
                                solved.solve_s * 1e3, proposal.moves.size(), proposal.step_after_s,
                                proposal.step_before_s),
                    {{"solve_s", solved.solve_s},
                     {"step_before_s", proposal.step_before_s},
                     {"step_after_s", proposal.step_after_s}});
  const std::uint64_t write = begin_switch(context, proposal.plan, std::move(row), std::move(trial),
                                           trigger, std::move(operator_row));
  answer(context, ask, choice, solved, write);
}

void JobLoop::answer(LoopContext& context, const Ask& ask, const Choice& choice,
                     const ReplanSolved& solved, std::uint64_t write) {
  if (ask.trigger == Trigger::kDrain) {
    const std::string rest =
        choice.act ? ""
                   : fmt::format(
                         "; it still works for job {} under plan {}: give the cluster a "
                         "spare, or stop the job, to free it",
                         job_->name, active_->epoch);
    context.drain_answers.emplace_back(ask.operator_request, choice.sentence + rest);
    return;
  }
  if (ask.trigger != Trigger::kOperator) {
    return;
  }
  OperatorReply reply{
      ask.operator_request, choice.sentence,
      solved.proposal ? std::make_shared<const solver::Proposal>(*solved.proposal) : nullptr};
  if (!solved.proposal) {
    reply.outcome = fail_in("no new plan", solved.proposal.error());
  }
  if (write == 0) {
    write =
        context.out.store({OperatorRow{ask.who, "replan " + job_->name, "", choice.sentence, 0}});
  }
  context.replies[write] = std::move(reply);
}

std::uint64_t JobLoop::begin_switch(LoopContext& context, solver::Plan plan, DecisionRow decision,
                                    Trial trial, const std::string& trigger,
                                    std::optional<OperatorRow> operator_row) {
  plan.job = job_->name;
  plan.parent = active_->epoch;
  plan.epoch = highest_epoch_ = Epoch(highest_epoch_.value() + 1);
  decision.epoch = plan.epoch;
  trial.old = active_;
  trial.before_s = watch_.recent_step_s();
  SwitchTask task{job_->name, context.term,
                  active_,    std::make_shared<const solver::Plan>(std::move(plan)),
                  trigger,    roles_.nodes()};
  task.nodes.merge(nodes_of(*job_, *task.to));
  record(context, decision, true);
  switch_decision_ = decision.decision;
  next_trial_ = std::move(trial);
  std::vector<StoreRow> rows{decisions_.front()};
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
  aborted_in_a_row_ = margin_doublings_ = 0;
  review_at_s_ = 0;
  if (next_trial_) {
    if (next_trial_->may_roll_back) {
      past_switches_.push_back({job_time_s_, next_trial_->nodes});
      while (past_switches_.front().time_s < job_time_s_ - kHourS) {
        past_switches_.pop_front();
      }
    }
    if (next_trial_->decision != 0) {
      trial_ = std::move(next_trial_);
    }
    next_trial_.reset();
  }
  recovered_nodes_.clear();
  last_hold_.clear();
  refresh_prediction(context);
  context.out.event(job_->name, "plan_active", "",
                    fmt::format("plan {} of job {} is active ({})", active_->epoch, job_->name,
                                switch_.task().trigger));
  // Idle devices run the job, too: they must know the plan they would start a switch from.
  for (const auto& [node, agent] : context.registry.agents()) {
    if (!switch_.task().nodes.contains(node) && context.registry.attached(node, job_->name)) {
      send_active(context, node);
    }
  }
}

void JobLoop::on_aborted(LoopContext& context) {
  if (switch_decision_ != 0) {
    amend(context, switch_decision_,
          {{"switch", "aborted: " + switch_.abort_reason()}, {"verify", "aborted"}});
  }
  const bool automatic = next_trial_ && next_trial_->may_roll_back;
  switch_decision_ = 0;
  next_trial_.reset();
  if (!automatic) {
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

DecisionRow JobLoop::new_decision(std::string code, std::string sentence,
                                  std::vector<Evidence> evidence) {
  return {job_->name,
          ++last_decision_,
          active_ ? active_->epoch : Epoch{},
          std::move(code),
          std::move(sentence),
          std::move(evidence),
          0};
}

void JobLoop::record(LoopContext& context, const DecisionRow& row, bool stored_elsewhere) {
  decisions_.push_front(row);
  decisions_.front().wall_ns = context.out.now().wall_ns;
  if (decisions_.size() > kKeptDecisions) {
    decisions_.pop_back();
  }
  if (!stored_elsewhere) {
    context.out.journal(decisions_.front());
  }
  const auto node = std::find_if(row.evidence.begin(), row.evidence.end(),
                                 [](const Evidence& entry) { return entry.key == "node"; });
  context.out.event(job_->name, "decision",
                    node == row.evidence.end() ? "" : std::get<std::string>(node->value),
                    fmt::format("{}: {}", row.reason_code, row.sentence), row.evidence);
}

void JobLoop::amend(LoopContext& context, std::uint64_t decision,
                    const std::vector<Evidence>& evidence) {
  const auto found = std::find_if(decisions_.begin(), decisions_.end(),
                                  [&](const DecisionRow& row) { return row.decision == decision; });
  if (found == decisions_.end()) {
    return;
  }
  for (const Evidence& entry : evidence) {
    put(found->evidence, entry.key, entry.value);
  }
  context.out.journal(*found);
}

void JobLoop::operator_replan(LoopContext& context, const OperatorCommand& command, bool dry_run) {
  const auto refuse = [&](std::string sentence) {
    context.out.add(OperatorReply{command.request,
                                  fail(ErrorCode::kConflict, "{}", std::move(sentence)), nullptr});
  };
  if (!active_) {
    if (!first_plan_) {
      no_plan_reason_.clear();
      context.out.add(RequestPlan{job_->name});
    }
    refuse(fmt::format("job {} has no plan yet; one is being solved", job_->name));
    return;
  }
  if (!dry_run && !switch_.idle()) {
    refuse(fmt::format("job {} is switching to plan {} ({}); wait for its end", job_->name,
                       switch_.task().to->epoch, to_string(switch_.stage())));
    return;
  }
  ask(context, {Trigger::kOperator, {}, command.request, command.who, dry_run, {}});
}

std::optional<std::string> JobLoop::drain(LoopContext& context, std::uint64_t request,
                                          const std::string& node) {
  if (!active_ || !roles_.nodes().contains(node)) {
    return fmt::format("job {} does not use it", job_->name);
  }
  if (!switch_.idle()) {
    return fmt::format(
        "job {} is in the middle of a switch and still uses it; drain it again after "
        "the switch to move the job off",
        job_->name);
  }
  ask(context, {Trigger::kDrain, {}, request, {}, false, node});
  return std::nullopt;
}

}  // namespace tapas::daemon
