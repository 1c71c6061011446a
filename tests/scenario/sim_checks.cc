#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "tests/scenario/sim_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

/// The invariants. Each is checked when something happens that could break it.
namespace tapas::daemon::sim {
namespace {

// Of the core in answer to one event, and of all that is on its way.
constexpr std::size_t kMostActionsPerNode = 16;
constexpr std::size_t kMostOnTheWay = 20'000;
// Job time is known by the last step; the cooldown is counted in it.
constexpr double kJobTimeSlackS = 6.0;

/// What a node does under a plan.
std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> work_of(
    const solver::Plan& plan, NodeId node) {
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> work;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const auto& splits = plan.splits_of(r);
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      if (plan.placement[r][s].node == node) {
        work.emplace(r, s, splits[s],
                     s + 1 < splits.size() ? splits[s + 1]
                                           : static_cast<std::uint32_t>(plan.tp_width.size()));
      }
    }
  }
  return work;
}

/// For comparing two cores.
std::string gist(const Action& action) {
  if (const auto* message = std::get_if<SendToAgent>(&action)) {
    const auto* order = std::get_if<SwitchMessage>(&message->message);
    return fmt::format("to {} {} {}", message->node, message->message.index(),
                       order == nullptr ? 0 : order->to.value() * 10 + order->at_step);
  }
  if (const auto* write = std::get_if<StoreWrite>(&action)) {
    std::string text = fmt::format("write {}", write->write);
    for (const StoreRow& row : write->rows) {
      const auto* event = std::get_if<EventRow>(&row);
      text += event == nullptr ? fmt::format(" {}", row.index()) : "; " + event->sentence;
    }
    return text;
  }
  return fmt::format("action {}", action.index());
}

}  // namespace

bool is_automatic(const std::string& trigger) {
  return trigger.starts_with("slow node") || trigger == "recovery" || trigger == "rollback";
}

void broken(const std::string& what) { throw std::logic_error("invariant broken: " + what); }

bool same_content(const solver::Plan& a, const solver::Plan& b) {
  return a.pp_splits == b.pp_splits && a.tp_width == b.tp_width && a.checkpoint == b.checkpoint &&
         a.microbatches == b.microbatches && a.placement == b.placement &&
         a.replica_splits == b.replica_splits && a.parent == b.parent;
}

bool has_position(const solver::Plan& plan, const solver::Job& job, RankId rank) {
  const NodeId node = job.cluster.node_of(rank);
  const auto device = static_cast<std::uint16_t>(job.cluster.device_of(rank));
  return std::any_of(plan.placement.begin(), plan.placement.end(), [&](const auto& replica) {
    return std::any_of(replica.begin(), replica.end(), [&](const solver::Position& position) {
      return position.node == node && std::find(position.devices.begin(), position.devices.end(),
                                                device) != position.devices.end();
    });
  });
}

void Sim::check_plan_of_core(const std::shared_ptr<const solver::Plan>& before) {
  const auto plan = core_->plan(job_->name);
  if (!plan || plan == before) {
    return;
  }
  if (before && plan->epoch < before->epoch) {
    broken("the core's epoch went back");
  }
  const auto stored = disk_.plans.find(plan->epoch);
  if (stored == disk_.plans.end() || stored->second.status != PlanStatus::kActive) {
    broken(fmt::format("plan {} is active in the core but not on disk", plan->epoch));
  }
  if (const auto ok = solver::check_plan(*job_, *plan); !ok) {
    broken("an invalid plan became active: " + ok.error().message);
  }
  if (before) {
    for (const std::string& violation : solver::switch_violations(*job_, *before, *plan)) {
      broken("a switch that the running job could not make: " + violation);
    }
  }
}

void Sim::check_actions(const Event& event, const std::vector<Action>& actions) {
  if (actions.size() > kMostActionsPerNode * (agents_.size() + 1)) {
    broken(fmt::format("{} actions for one event", actions.size()));
  }
  if (queue_.size() > kMostOnTheWay) {
    broken(fmt::format("{} things are on their way", queue_.size()));
  }
  if (const auto* done = std::get_if<StoreDone>(&event); done != nullptr && done->outcome) {
    const auto written = untold_.extract(done->write);
    for (const StoreRow& row : written.mapped()) {
      if (const auto* node = std::get_if<NodeStateRow>(&row)) {
        told_nodes_[node->node] = *node;
      } else if (const auto* action = std::get_if<OperatorRow>(&row)) {
        if (action->action.starts_with("auto ")) {
          told_pause_ = action->action == "auto off" ? std::optional(action->who) : std::nullopt;
        }
      }
    }
  }
  for (const Action& action : actions) {
    if (const auto* write = std::get_if<StoreWrite>(&action)) {
      check_proposal(*write);
    }
  }
}

/// A switch begins: nothing that an operator or the rules forbid is in its plan.
void Sim::check_proposal(const StoreWrite& write) {
  const PlanRow* proposed = nullptr;
  for (const StoreRow& row : write.rows) {
    const auto* plan = std::get_if<PlanRow>(&row);
    if (plan != nullptr && plan->status == PlanStatus::kProposed) {
      proposed = plan;
    }
  }
  if (proposed == nullptr) {
    return;
  }
  const solver::Plan& plan = *proposed->plan;
  const solver::Plan& running = *core_->plan(job_->name);
  if (plan.parent != running.epoch) {
    broken(fmt::format("plan {} does not start from the running one", plan.epoch));
  }
  for (const auto& [name, state] : told_nodes_) {
    const NodeId node = *job_->cluster.find(name);
    if (state.drained && work_of(running, node).empty() && !work_of(plan, node).empty()) {
      broken(fmt::format("plan {} uses {}, which is drained", plan.epoch, name));
    }
    if (state.pinned && work_of(running, node) != work_of(plan, node)) {
      broken(fmt::format("plan {} moves layers of {}, which is pinned", plan.epoch, name));
    }
  }
  if (!is_automatic(proposed->trigger)) {
    return;
  }
  if (told_pause_) {
    broken(fmt::format("plan {} ({}) in a pause", plan.epoch, proposed->trigger));
  }
  if (proposed->trigger == "rollback") {
    return;
  }
  if (!clock_off_s_.empty()) {
    return;  // What follows counts in job time, as the nodes' clocks have it.
  }
  const double since_s = automatic_.empty() ? 1e9 : last_end_s_ - automatic_.back();
  if (since_s < options_.config.cooldown_s - kJobTimeSlackS) {
    broken(fmt::format("plan {} ({}) {:.1f} s after the one before", plan.epoch, proposed->trigger,
                       since_s));
  }
  const auto in_hour = std::count_if(automatic_.begin(), automatic_.end(), [this](double at_s) {
    return at_s > last_end_s_ - 3600 + kJobTimeSlackS;
  });
  if (in_hour >= options_.config.replans_per_hour) {
    broken(fmt::format("plan {} is number {} of the hour", plan.epoch, in_hour + 1));
  }
}

/// What an operator is told to be done is on the disk.
void Sim::check_reply(const OperatorReply& reply) {
  const auto asked = unanswered_.find(reply.request);
  if (asked == unanswered_.end()) {
    broken(fmt::format("command {} was answered twice, or never given", reply.request));
  }
  const auto* replan = std::get_if<Replan>(&asked->second.verb);
  if (!reply.outcome || (replan != nullptr && replan->dry_run)) {
    return;
  }
  const bool durable = std::any_of(disk_.operators.begin(), disk_.operators.end(),
                                   [&](const auto& row) { return row.who == asked->second.who; });
  if (!durable) {
    broken(fmt::format("command {} was acknowledged and is not on the disk", reply.request));
  }
}

void Sim::check_second_core(const Event& event, const std::vector<Action>& actions) {
  if (!second_core_) {
    return;
  }
  const std::vector<Action> others = second_core_->apply(event, clock());
  for (std::size_t i = 0; i < std::max(actions.size(), others.size()); ++i) {
    const std::string first = i < actions.size() ? gist(actions[i]) : "nothing";
    const std::string second = i < others.size() ? gist(others[i]) : "nothing";
    if (first != second) {
      broken(fmt::format("one core does \"{}\", the other \"{}\"", first, second));
    }
  }
}

/// A rank goes on under a plan only when that was decided, and never backwards.
void Sim::check_may_run(const Agent& agent, const Rank& rank, Epoch epoch) const {
  const auto stored = disk_.plans.find(epoch);
  const auto change = disk_.switches.find(epoch);
  if (stored == disk_.plans.end() || (stored->second.status != PlanStatus::kActive &&
                                      stored->second.status != PlanStatus::kSuperseded)) {
    broken(fmt::format("{} commits epoch {} that is not durably active", agent.node, epoch));
  }
  if (change != disk_.switches.end() && change->second.state != SwitchState::kCommitDecided &&
      change->second.state != SwitchState::kDone) {
    broken(fmt::format("{} commits epoch {} that was not decided", agent.node, epoch));
  }
  if (epoch < rank.epoch) {
    broken(fmt::format("{} goes from epoch {} to {}", agent.node, rank.epoch, epoch));
  }
}

/// No two ranks with work go on under different plans.
void Sim::check_barrier() const {
  const Rank* first = nullptr;
  for (const auto& agent : agents_) {
    for (const Rank& rank : agent->ranks) {
      if (rank.epoch == Epoch{} || rank.holding ||
          !has_position(*plans_.at(rank.epoch), *job_, rank.id)) {
        continue;
      }
      if (first != nullptr && first->epoch != rank.epoch) {
        broken(fmt::format("ranks {} and {} are past a barrier in epochs {} and {}", first->id,
                           rank.id, first->epoch, rank.epoch));
      }
      first = &rank;
    }
  }
}

}  // namespace tapas::daemon::sim
