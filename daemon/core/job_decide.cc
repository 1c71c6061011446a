#include "daemon/core/job_loop.h"
#include "solver/cost/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr std::size_t kKeptDecisions = 64;
constexpr double kHourS = 3600.0;
// Plans are looked for as if it lasted this long at least: what a switch would save must be known
// to tell when it is due. Whether it pays is weighed over the time that is really expected.
constexpr double kLeastHorizonS = 600.0;
// Steps that a plan waits for what else is about to be told: no alarm of a clear fault takes more.
constexpr std::uint32_t kMostSettleSteps = 5;

double bytes_of(const std::vector<solver::LayerMove>& moves) {
  double bytes = 0;
  for (const solver::LayerMove& move : moves) {
    bytes += move.bytes;
  }
  return bytes;
}

std::string duration(double seconds) {
  seconds = std::max(0.0, seconds);
  return seconds < 120    ? fmt::format("{:.0f} s", seconds)
         : seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60)
                          : fmt::format("{:.1f} h", seconds / 3600);
}

/// Goes on with a sentence about the proposal: what came first, and how far the bound is.
std::string how_good(const solver::Proposal& proposal) {
  std::string text;
  if (!proposal.tried.empty()) {
    text += fmt::format("; the first answer ({}) had {:.3f} s", proposal.tried.front().what,
                        proposal.tried.front().step_s);
  }
  if (proposal.lower_bound_s > 0) {
    text += fmt::format("; no plan is below {:.3f} s, the gap is {:.1f} %", proposal.lower_bound_s,
                        100 * (proposal.step_after_s / proposal.lower_bound_s - 1));
  }
  return text;
}

}  // namespace

std::set<std::string> JobLoop::blamed_nodes() const {
  std::set<std::string> nodes;
  for (const auto& [node, slow] : slow_) {
    nodes.insert(node);
  }
  return nodes;
}

void JobLoop::want_review() {
  review_wanted_ = true;
  steps_since_told_ = 0;
  last_hold_.clear();
  conditions_changed();
}

bool JobLoop::more_to_come() const {
  if ((watch_.any_suspect() && !watch_.verdict_due()) ||
      (links_.any_suspect() && !links_.verdict_due())) {
    return true;
  }
  // After one step a second fault is seen to rise that began when the first was told.
  const bool rises = steps_since_told_ == 0 || watch_.rising() || links_.rising();
  return rises && steps_since_told_ < kMostSettleSteps;
}

bool JobLoop::overtaken() const {
  const SwitchMachine::Stage stage = switch_.stage();
  const bool nothing_moved = stage == SwitchMachine::Stage::kStoring ||
                             stage == SwitchMachine::Stage::kPreparing ||
                             stage == SwitchMachine::Stage::kArming;
  if (!nothing_moved || overtaken_ != Epoch() || !next_trial_ || !next_trial_->row.may_roll_back) {
    return false;
  }
  const std::vector<std::string>& planned = next_trial_->row.nodes;
  return std::any_of(slow_.begin(), slow_.end(), [&](const auto& entry) {
    return !std::binary_search(planned.begin(), planned.end(), entry.first);
  });
}

void JobLoop::review(LoopContext& context) {
  review_at_s_ = 0;
  const bool asked = std::any_of(asks_.begin(), asks_.end(), [](const auto& entry) {
    return entry.second.operator_request == 0;
  });
  if (overtaken()) {
    overtaken_ = switch_.task().to->epoch;
    on_outcome(context, switch_.abort("another node got slow before anything moved: one plan is "
                                      "made for all",
                                      env(context)));
  }
  if (!switch_.idle() || trial_ || asked || more_to_come()) {
    review_wanted_ = true;  // Once that is over.
    return;
  }
  review_wanted_ = false;
  if (slow_.empty() && recovered_nodes_.empty()) {
    return;
  }
  if (slow_.empty()) {
    double rest_s = std::numeric_limits<double>::infinity();
    for (const std::string& node : recovered_nodes_) {
      rest_s = std::min(rest_s, resting_s(context.config, node));
    }
    if (rest_s > 0) {
      hold_recovery(context, rest_s);
      return;
    }
  }
  for (auto& [node, slow] : slow_) {
    slow.asked_at = slowdown(node);
  }
  ask(context, {slow_.empty() ? Trigger::kRecovery : Trigger::kCulprit, {}, 0, {}, false, {}});
}

void JobLoop::hold_recovery(LoopContext& context, double rest_s) {
  review_at_s_ = job_time_s_ + rest_s;
  const std::string hold = fmt::format("flapping {}", fmt::join(recovered_nodes_, " "));
  if (std::exchange(last_hold_, hold) == hold) {
    return;
  }
  const std::string& node = *recovered_nodes_.begin();
  const DeviceRow* held = worst_record(node);
  DecisionRow row = new_decision(
      "flapping",
      fmt::format("node {} is healthy again; it was slow {} times in a row, so no work moves back "
                  "to it before it was well for {:.0f} s more",
                  fmt::join(recovered_nodes_, ", "), held->episodes, rest_s),
      verdict_evidence_);
  put(row.evidence, "episodes", static_cast<std::int64_t>(held->episodes));
  put(row.evidence, "quarantine_left_s", rest_s);
  put(row.evidence, "decided_by",
      fmt::format("flap_quarantine_s {}", context.config.flap_quarantine_s));
  record(context, row, false);
}

std::vector<bool> JobLoop::pinned(const LoopContext& context, Trigger trigger) const {
  std::vector<bool> out(job_->cluster.nodes.size(), false);
  for (std::uint32_t n = 0; n < out.size(); ++n) {
    const std::string& node = job_->cluster.nodes[n].name;
    const bool automatic = trigger == Trigger::kCulprit || trigger == Trigger::kRecovery;
    const auto state = context.nodes.find(node);
    // An operator's order skips a quarantine, never a pin.
    out[n] = (state != context.nodes.end() && state->second.pinned) ||
             (automatic && resting_s(context.config, node) > 0);
  }
  return out;
}

void JobLoop::ask(LoopContext& context, Ask ask) {
  ask.base = active_->epoch;
  ask.rest = expected_rest(context);
  const std::uint64_t request = ++context.last_request;
  solver::ReplanRequest problem;
  problem.current = *active_;
  problem.state = cluster_state(context);
  problem.pinned = pinned(context, ask.trigger);
  problem.expected_episode_s = std::max(ask.rest.seconds, kLeastHorizonS);
  problem.calibration = calibration_;
  context.out.add(RequestReplan{job_->name, request, std::move(problem)});
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
  for (const auto& [node, slow] : slow_) {
    if (slowdown(node) > 1.0) {
      parts.push_back(fmt::format("node {} computes {:.2f} times as long as its equals (for {})",
                                  node, slowdown(node), duration(job_time_s_ - slow.since_s)));
    }
  }
  for (const LinkFault& fault : links_.faults()) {
    parts.push_back(fmt::format("{} (for {})", to_text(fault, job_->cluster),
                                duration(job_time_s_ - fault.since.begin_s)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

double JobLoop::cooldown_left_s(const LoopContext& context,
                                const std::set<std::string>& nodes) const {
  if (past_switches_.empty()) {
    return 0;
  }
  const std::size_t times = std::max<std::size_t>(recent_switches(nodes), 1);
  return past_switches_.back().time_s + cooldown_s(context.config, times) - job_time_s_;
}

double JobLoop::usual_step_s() const {
  const double healthy_s = solver::predict(*job_, *active_).step_time_s * calibration_;
  // After a restart of the daemon the step is learnt with the late loaders that it knows of.
  const double learnt_s = watch_.any_late() ? watch_.learnt_step_s() : 0;
  return healthy_step_s_ > 0 ? std::max({healthy_s, accepted_step_s_, learnt_s}) : 0;
}

Circumstances JobLoop::circumstances(const LoopContext& context, const Ask& ask,
                                     const solver::Proposal* change) const {
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
                    [this](const auto& past) { return past.time_s > job_time_s_ - kHourS; });
  out.budget_left = within_hour < static_cast<std::ptrdiff_t>(context.config.replans_per_hour);
  out.quarantine_left_s = idea_rests_until_s(nodes) - job_time_s_;
  out.usual_step_s = usual_step_s();
  out.observed_step_s = watch_.recent_step_s();
  out.step_noise = watch_.step_sigma();
  if (change != nullptr) {
    out.obstacle = obstacle(context, change->plan);
    out.defect = defect(context, change->plan);
    if (out.defect.empty() && nodes_of(*job_, change->plan).contains(ask.drained)) {
      out.defect = "the best plan found still needs the node, there is no free spare for it";
    }
  }
  return out;
}

std::vector<Evidence> JobLoop::proposal_evidence(const Ask& ask, const ReplanSolved& solved,
                                                 const solver::Proposal* change) const {
  std::vector<Evidence> evidence;
  if (ask.trigger == Trigger::kCulprit || ask.trigger == Trigger::kRecovery) {
    evidence = verdict_evidence_;
  } else if (!ask.drained.empty()) {
    put(evidence, "node", ask.drained);
  }
  put(evidence, "predicted_step_s", predicted_step_s_);
  put(evidence, "solve_s", solved.solve_s);
  put(evidence, "expected_episode_s", ask.rest.seconds);
  put(evidence, "expected_because", ask.rest.basis);
  if (solved.proposal) {
    const solver::Proposal& proposal = change != nullptr ? *change : *solved.proposal;
    put(evidence, "step_before_s", proposal.step_before_s);
    put(evidence, "step_after_s", proposal.step_after_s);
    put(evidence, "lower_bound_s", proposal.lower_bound_s);
    if (proposal.lower_bound_s > 0) {
      put(evidence, "after_over_bound_ratio", proposal.step_after_s / proposal.lower_bound_s);
    }
    if (!proposal.tried.empty()) {
      put(evidence, "first_step_s", proposal.tried.front().step_s);
    }
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
  if (ask.operator_request == 0 && review_wanted_) {
    review(context);  // Something got slow or well since it was asked.
    return;
  }
  decide(context, ask, solved);
}

void JobLoop::decide(LoopContext& context, const Ask& ask, const ReplanSolved& solved) {
  const Outlook ahead = outlook(ask, solved);
  Priced priced = price(ahead, ask.trigger, *active_, solved.proposal, solved.lesser,
                        active_->predicted.lower_bound_s * calibration_);
  const Choice choice = weigh(context.config, circumstances(context, ask, priced.change), ahead,
                              solved.proposal, priced);
  if (solved.proposal && solved.proposal->lower_bound_s > 0) {
    bound_step_s_ = solved.proposal->lower_bound_s;
  }
  const bool automatic = ask.operator_request == 0;
  std::set<std::string> nodes = blamed_nodes();
  nodes.insert(recovered_nodes_.begin(), recovered_nodes_.end());
  const std::string hold = fmt::format("{} {}", choice.code, fmt::join(nodes, " "));
  if (automatic && !choice.act) {
    // Asked again later, rarer each time the answer stays the same; said only once.
    const bool again =
        last_hold_ == hold && choice.code != "not_worth_it" && choice.code != "unexplained";
    const double wait = choice.retry_after_s * (again ? 4 : 1);
    review_at_s_ = job_time_s_ + wait;
    if (choice.code == "no_better_plan" && slow_.empty()) {
      forget_recovered(context);
      review_at_s_ = 0;
    }
    if (std::exchange(last_hold_, hold) == hold) {
      return;
    }
  }
  DecisionRow row =
      new_decision(choice.code, choice.sentence, proposal_evidence(ask, solved, priced.change));
  put(row.evidence, "decided_by", choice.decided_by);
  put(row.evidence, "lost_so_far_s", ahead.lost_s);
  if (!priced.prices.empty()) {
    put(row.evidence, "expected_loss_s", priced.lost_by_waiting_s);
    if (priced.change != nullptr) {
      put(row.evidence, "gain_s", priced.lost_by_waiting_s - priced.lost_by_change_s);
    }
    priced.prices[choice.act ? priced.best : 0].chosen = true;
    put(row.evidence, "answers", std::move(priced.prices));
  }
  if (!choice.act) {
    record(context, row, false);
    answer(context, ask, choice, solved, 0);
    return;
  }
  put(row.evidence, "verify", "pending");
  const solver::Proposal& proposal = *priced.change;
  Trial trial;
  trial.row.decision = row.decision;
  trial.row.nodes.assign(nodes.begin(), nodes.end());
  trial.row.may_roll_back = automatic;
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
                                "{:.3f} s a step{}",
                                solved.solve_s * 1e3, proposal.moves.size(), proposal.step_after_s,
                                proposal.step_before_s, how_good(proposal)),
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
  for (const Evidence& entry : evidence) {
    if (found != decisions_.end()) {
      put(found->evidence, entry.key, entry.value);
    }
  }
  context.out.journal(DecisionAmendment{job_->name, decision, evidence, 0});
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
