#include "daemon/core/job_loop.h"

#include "solver/check/check_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapas::daemon {
namespace {

// Timers of one rank start and stop at slightly different moments.
constexpr double kTimerTolerance = 1.1;
constexpr double kTimerToleranceS = 0.001;
// Clocks are compared each so many steps.
constexpr std::uint64_t kClockSteps = 16;
// Ranks whose steps are judged in one event, so that no message waits long behind it; the rest is
// judged with the next records.
constexpr std::size_t kRanksPerEvent = 4096;
// A first plan that could not be stored is made again after this time.
constexpr std::chrono::seconds kAskAgain{10};

bool finite_and_positive(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

void put(std::vector<Evidence>& evidence, std::string key, decltype(Evidence::value) value) {
  const auto found = std::find_if(evidence.begin(), evidence.end(),
                                  [&](const Evidence& entry) { return entry.key == key; });
  if (found != evidence.end()) {
    found->value = std::move(value);
  } else {
    evidence.push_back({std::move(key), std::move(value)});
  }
}

JobLoop::JobLoop(std::shared_ptr<const solver::Job> job, RestoredJob restored)
    : job_(std::move(job)),
      restored_(std::move(restored)),
      highest_epoch_(restored_.highest_epoch),
      last_decision_(restored_.last_decision),
      window_(job_->cluster.device_count()),
      watch_(job_->cluster.device_count()),
      links_(job_->cluster),
      memory_(job_->name, job_->cluster),
      clock_off_s_(job_->cluster.device_count(), 0.0),
      step_ends_(job_->cluster.device_count()) {}

void JobLoop::start(LoopContext& context) {
  for (const SwitchRow& open : restored_.open_switches) {
    highest_epoch_ = std::max(highest_epoch_, open.to);
    const bool pending = restored_.pending && restored_.pending->epoch == open.to;
    if (open.state == SwitchState::kCommitDecided) {
      if (pending && (!restored_.active || restored_.active->epoch < open.to)) {
        restored_.active = restored_.pending;
      }
      continue;
    }
    const std::string reason = "the daemon was restarted before the decision";
    context.out.journal(
        SwitchRow{job_->name, open.from, open.to, SwitchState::kAborted, reason, 0});
    if (pending) {
      context.out.journal(PlanRow{job_->name, restored_.pending, PlanStatus::kAborted, "", 0});
    }
    context.out.event(job_->name, "switch_aborted", "",
                      fmt::format("switch {} -> {} aborted, plan {} goes on: {}", open.from,
                                  open.to, open.from, reason));
  }
  if (!restored_.active) {
    context.out.add(RequestPlan{job_->name});
  } else {
    highest_epoch_ = std::max(highest_epoch_, restored_.active->epoch);
    adopt(restored_.active);
    restore_memory(context);
    refresh_prediction(context);
    context.out.event(job_->name, "plan_active", "",
                      fmt::format("plan {} of job {} goes on after a restart of the daemon",
                                  active_->epoch, job_->name));
    for (const SwitchRow& open : restored_.open_switches) {
      if (open.state == SwitchState::kCommitDecided && open.to == active_->epoch) {
        switch_.resume({job_->name, context.term, nullptr, active_, open.reason, roles_.nodes()},
                       env(context));
      }
    }
  }
  restored_ = {};
}

void JobLoop::adopt(std::shared_ptr<const solver::Plan> plan) {
  active_ = std::move(plan);
  accepted_step_s_ = 0;
  roles_ = Roles(*job_, *active_);
  window_.follow(roles_.held());
  watch_.follow(roles_);
  links_.follow_plan();
}

void JobLoop::send_active(LoopContext& context, const std::string& node) const {
  context.out.send(node, PlanMessage{job_->name, context.term, active_, true});
}

void JobLoop::hello(LoopContext& context, const AgentHello& hello,
                    const Registry::Arrival& arrival) {
  const auto found =
      std::find_if(hello.jobs.begin(), hello.jobs.end(),
                   [this](const JobAttachment& entry) { return entry.job == job_->name; });
  const JobAttachment* attachment = found == hello.jobs.end() ? nullptr : &*found;
  if (attachment != nullptr) {
    // Plans that this store does not know of must not meet their numbers again.
    highest_epoch_ = std::max({highest_epoch_, attachment->epoch, attachment->pending_epoch});
    know_devices(context, hello.node, *attachment);
  }
  on_outcome(context, switch_.hello(hello.node, attachment, arrival.restarted, env(context)));
  if (attachment == nullptr || !active_) {
    return;
  }
  const auto order = [&](SwitchOrder verb, const std::string& reason) {
    context.out.send(hello.node, SwitchMessage{verb, job_->name, context.term, attachment->epoch,
                                               attachment->pending_epoch, 0, reason});
  };
  if (!switch_.idle() && switch_.task().nodes.contains(hello.node)) {
    // The machine orders COMMIT or ABORT itself; a node that lost its part gets the active plan,
    // once it is known which one that is.
    if (!switch_.strays().contains(hello.node) &&
        attachment->pending_epoch != switch_.task().to->epoch &&
        attachment->epoch < active_->epoch) {
      send_active(context, hello.node);
    }
    return;
  }
  if (attachment->pending_epoch == active_->epoch) {
    order(SwitchOrder::kCommit, {});
    return;
  }
  if (attachment->pending_epoch != Epoch{}) {
    order(SwitchOrder::kAbort, "this switch is over");
  }
  if (attachment->epoch > active_->epoch) {
    context.out.event(
        job_->name, "epoch_conflict", hello.node,
        fmt::format(
            "{} runs plan {} that this daemon does not know; the newest here is {}: was "
            "the state directory restored from an old copy? A replan by an operator ends it",
            hello.node, attachment->epoch, active_->epoch));
  } else if (attachment->epoch != active_->epoch) {
    send_active(context, hello.node);
  }
}

void JobLoop::agent_lost(LoopContext& context, const std::string& node) {
  on_outcome(context, switch_.agent_lost(node, env(context)));
}

std::optional<JobLoop::Rejection> JobLoop::implausible(const std::string& node,
                                                       const StepSample& sample) const {
  const auto reject = [&](std::string reason, std::string sentence) {
    return Rejection{std::move(reason),
                     fmt::format("{}: record of job {} {}", node, job_->name, std::move(sentence))};
  };
  if (sample.rank.value() >= job_->cluster.device_count()) {
    return reject("unknown_rank",
                  fmt::format("names rank {}, but the cluster has ranks 0 to {}; use one cluster "
                              "file on both sides",
                              sample.rank, job_->cluster.device_count() - 1));
  }
  const std::string& owner = job_->cluster.nodes[job_->cluster.node_of(sample.rank).value()].name;
  if (owner != node) {
    return reject("foreign_rank",
                  fmt::format("names rank {}, which belongs to node {}", sample.rank, owner));
  }
  if (sample.node != name_hash(node)) {
    return reject("wrong_node", fmt::format("of rank {} carries another node's hash {:016x}",
                                            sample.rank, sample.node));
  }
  const double parts[] = {sample.forward_s,       sample.backward_s,  sample.optimizer_s,
                          sample.tp_collective_s, sample.pp_wait_s,   sample.pp_transfer_s,
                          sample.dp_collective_s, sample.input_wait_s};
  const double compute = sample.forward_s + sample.backward_s + sample.optimizer_s;
  const double most = sample.wall_s * kTimerTolerance + kTimerToleranceS;
  const bool sane =
      std::isfinite(sample.wall_s) && sample.wall_s > 0 && std::isfinite(sample.end_time_s) &&
      std::all_of(std::begin(parts), std::end(parts),
                  [&](double part) { return finite_and_positive(part) && part <= most; });
  if (!sane || compute > most) {
    return reject("implausible",
                  fmt::format("of rank {}, step {} says {:.6g} s wall and {:.6g} s compute; the "
                              "parts of a step cannot be longer than the step: check the units",
                              sample.rank, sample.step, sample.wall_s, compute));
  }
  if (sample.microbatches > job_->global_batch) {
    return reject("implausible", fmt::format("of rank {} claims {} microbatches of {} in a step",
                                             sample.rank, sample.microbatches, job_->global_batch));
  }
  return std::nullopt;
}

bool JobLoop::longer_than_its_time(const StepSample& sample) {
  const StepEnd before =
      std::exchange(step_ends_[sample.rank.value()], {sample.step, sample.end_time_s});
  const double passed_s = sample.end_time_s - before.end_s;
  // A clock that was set back says nothing.
  return sample.step == before.step + 1 && passed_s > 0 &&
         sample.wall_s > passed_s * kTimerTolerance + kTimerToleranceS;
}

bool JobLoop::follows_session(LoopContext& context, const StepSample& sample) {
  if (sample.session == session_) {
    return true;
  }
  // One node with leftovers of another start of the job must not make everybody start over.
  if (session_ != 0) {
    if (next_session_ != sample.session) {
      next_session_ = sample.session;
      next_session_ranks_.clear();
    }
    next_session_ranks_.insert(sample.rank);
    if (next_session_ranks_.size() * 2 <= roles_.held()) {
      return false;
    }
    context.out.event(job_->name, "session", "",
                      fmt::format("job {} was started anew; its levels are learnt again, culprits "
                                  "stay with their devices",
                                  job_->name));
    on_outcome(context, switch_.abort("the job was started anew", env(context)));
  }
  session_ = sample.session;
  accepted_step_s_ = 0;
  next_session_ranks_.clear();
  window_.restart();
  watch_.new_session();
  links_.new_session();
  restore_late(context);
  paced_step_ = 0;
  return true;
}

std::optional<JobLoop::Rejection> JobLoop::sample(LoopContext& context, const std::string& node,
                                                  const StepSample& sample) {
  if (auto rejection = implausible(node, sample)) {
    return rejection;
  }
  if (!active_ || sample.epoch != active_->epoch) {
    return Rejection{"stale_epoch", ""};
  }
  if (!follows_session(context, sample)) {
    return Rejection{"stale_session", ""};
  }
  if (longer_than_its_time(sample)) {
    return Rejection{
        "implausible",
        fmt::format("{}: record of job {} of rank {}, step {} says {:.6g} s wall, more "
                    "than have passed since the step before: check the units",
                    node, job_->name, sample.rank, sample.step, sample.wall_s)};
  }
  switch (window_.add(sample)) {
    case StepWindow::Intake::kTaken:
      return std::nullopt;
    case StepWindow::Intake::kDuplicate:
      return Rejection{"duplicate_step", ""};
    case StepWindow::Intake::kLate:
      return Rejection{"late_step", ""};
    case StepWindow::Intake::kAhead:
      break;
  }
  return Rejection{"step_ahead",
                   fmt::format("{}: rank {} of job {} reports step {}, far ahead of step {} where "
                               "the other ranks are",
                               node, sample.rank, job_->name, sample.step, window_.newest())};
}

void JobLoop::judge(LoopContext& context) {
  const std::uint64_t newest = window_.newest();
  const double elapsed =
      std::chrono::duration<double>(context.out.now().steady - paced_at_).count();
  if (paced_step_ == 0 || newest < paced_step_) {
    paced_step_ = newest;
    paced_at_ = context.out.now().steady;
  } else if (elapsed >= 1.0) {
    steps_per_s_ = static_cast<double>(newest - paced_step_) / elapsed;
    paced_step_ = newest;
    paced_at_ = context.out.now().steady;
  }
  // What is left is judged with the next event, so that nobody waits long for an answer.
  for (std::size_t ranks = 0; ranks < kRanksPerEvent; ranks += step_ends_.size()) {
    auto whole = window_.next();
    if (!whole) {
      break;
    }
    if (whole->step % kClockSteps == 0) {
      note_clocks(*whole);
    }
    if (const auto step = watch_.observe(*whole)) {
      on_step(context, *step);
    }
    window_.recycle(std::move(*whole));
  }
}

void JobLoop::note_clocks(const WholeStep& step) {
  std::vector<double> ends;
  for (const RankStep& rank : step.ranks) {
    if (rank.seen) {
      ends.push_back(rank.end_s);
    }
  }
  if (ends.empty()) {
    return;
  }
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    if (step.ranks[rank].seen) {
      clock_off_s_[rank] = step.ranks[rank].end_s - *middle;
    }
  }
}

double JobLoop::clock_off_s(const std::string& node) const {
  double worst = 0;
  for (const RankId rank : ranks_of(node)) {
    if (const double off = clock_off_s_[rank.value()]; std::abs(off) > std::abs(worst)) {
      worst = off;
    }
  }
  return worst;
}

bool JobLoop::vote(LoopContext& context, const AgentVote& vote) {
  bool known = false;
  on_outcome(context, switch_.vote(vote, env(context), known));
  return known;
}

void JobLoop::plan_solved(LoopContext& context, const PlanSolved& solved) {
  if (active_ || first_plan_) {
    return;
  }
  const auto refuse = [&](const std::string& message) {
    no_plan_reason_ = message;
    context.out.event(job_->name, "plan_failed", "",
                      fmt::format("no plan for job {}: {}", job_->name, message));
  };
  if (!solved.plan) {
    refuse(solved.plan.error().message);
    return;
  }
  solver::Plan plan = *solved.plan;
  plan.job = job_->name;
  plan.epoch = highest_epoch_ = Epoch(highest_epoch_.value() + 1);
  plan.parent = Epoch{};
  if (const auto valid = solver::check_plan(*job_, plan); !valid) {
    refuse("the solver's plan is refused: " + valid.error().message);
    return;
  }
  first_plan_ = std::make_shared<const solver::Plan>(std::move(plan));
  DecisionRow row = new_decision("first_plan", solved.summary, {{"solve_s", solved.solve_s}});
  row.epoch = first_plan_->epoch;
  record(context, row, true);
  first_plan_write_ = context.out.store(
      {decisions_.front(), PlanRow{job_->name, first_plan_, PlanStatus::kActive, "offline", 0}});
}

void JobLoop::stored(LoopContext& context, const StoreDone& done) {
  if (first_plan_ && done.write == first_plan_write_) {
    if (!done.outcome) {
      no_plan_reason_ = "the store refused the plan: " + done.outcome.error().message;
      first_plan_.reset();
      ask_again_at_ = context.out.now().steady + kAskAgain;
      return;
    }
    adopt(std::exchange(first_plan_, nullptr));
    refresh_prediction(context);
    context.out.event(job_->name, "plan_active", "",
                      fmt::format("plan {} of job {} is active: {} stages, {} replicas, {:.3f} s a "
                                  "step predicted",
                                  active_->epoch, job_->name, active_->stages(),
                                  active_->replicas(), predicted_step_s_));
    for (const auto& [node, agent] : context.registry.agents()) {
      if (context.registry.attached(node, job_->name)) {
        send_active(context, node);
      }
    }
    return;
  }
  on_outcome(context, switch_.stored(done, env(context)));
}

void JobLoop::tick(LoopContext& context) {
  if (ask_again_at_ && context.out.now().steady >= *ask_again_at_) {
    ask_again_at_.reset();
    if (!active_) {
      context.out.add(RequestPlan{job_->name});
    }
  }
  on_outcome(context, switch_.tick(env(context)));
}

std::vector<RankId> JobLoop::ranks_of(const std::string& node) const {
  std::vector<RankId> out;
  if (const auto id = job_->cluster.find(node)) {
    for (std::uint32_t device = 0; device < job_->cluster.type_of(*id).devices; ++device) {
      out.push_back(job_->cluster.rank_of(*id, device));
    }
  }
  return out;
}

double JobLoop::slowdown(const std::string& node) const {
  double worst = 1.0;
  for (const RankId rank : ranks_of(node)) {
    worst = std::max(worst, watch_.slowdown(rank));
  }
  return worst;
}

JobView JobLoop::view(const Registry& registry) const {
  JobView out;
  out.job = job_->name;
  out.session = session_;
  out.plan = active_;
  out.last_step = window_.newest();
  out.observed_step_s = watch_.recent_step_s();
  out.healthy_step_s = healthy_step_s_;
  out.predicted_step_s = predicted_step_s_;
  out.bound_step_s = bound_step_s_;
  out.verdict = verdict_;
  for (const LinkFault& fault : links_.faults()) {
    out.slow_links.push_back(to_text(fault, job_->cluster));
  }
  out.ranks_reporting = window_.live();
  out.ranks_expected = roles_.held();
  const auto away = std::count_if(roles_.nodes().begin(), roles_.nodes().end(),
                                  [&](const auto& n) { return !registry.attached(n, job_->name); });
  if (!active_) {
    out.phase = no_plan_reason_.empty() ? "solving" : "no plan: " + no_plan_reason_;
  } else if (!switch_.idle()) {
    out.phase = fmt::format("switching: {}", to_string(switch_.stage()));
  } else if (away > 0) {
    out.phase = fmt::format("waiting for {} agents", away);
  } else if (trial_) {
    out.phase = "verifying";
  } else {
    out.phase = watch_.learning() ? "learning" : "watching";
  }
  return out;
}

}  // namespace tapas::daemon
