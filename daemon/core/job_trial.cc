#include "base/median.h"
#include "daemon/core/job_loop.h"
#include "solver/cost/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tapas::daemon {
namespace {

// Steps under a new plan before it is judged.
constexpr std::size_t kTrialSteps = 5;
// Ranks with other work than before learn their level anew; in as many steps one that got slow
// meanwhile is told. Before that no plan is called worse for what may be a fault.
constexpr std::uint32_t kSureSteps = 16;
// Where something is about to be told for so long, the trial ends undecided.
constexpr std::uint32_t kMostSteps = 48;
// Slower than before by this share is clearly worse, unless the job is noisier.
constexpr double kWorse = 0.05;

}  // namespace

double JobLoop::model_step_s(const LoopContext& context, const solver::Plan& plan) const {
  return solver::predict(*job_, plan, cluster_state(context)).step_time_s;
}

JobLoop::Comparison JobLoop::compare(const LoopContext& context, const Trial& trial) const {
  Comparison out;
  std::vector<double> walls(trial.walls.end() - kTrialSteps, trial.walls.end());
  out.observed_s = median(std::move(walls));
  // Both as things are now: what got slow or well since says nothing about the plan.
  if (trial.row.before_model_s > 0) {
    out.before_s =
        trial.row.before_s * model_step_s(context, *trial.old) / trial.row.before_model_s;
  }
  out.promised_s = model_step_s(context, *active_) * calibration_;
  const double limit = 1 + std::max(kWorse, 3 * watch_.step_sigma());
  out.worse = trial.row.may_roll_back && out.before_s > 0 &&
              out.observed_s > limit * std::max(out.before_s, out.promised_s);
  return out;
}

void JobLoop::on_trial_step(LoopContext& context, const JobStep& step) {
  trial_->walls.push_back(step.wall_s);
  ++trial_->steps;
  if (trial_->walls.size() < kTrialSteps) {
    return;
  }
  const Comparison now = compare(context, *trial_);
  const bool unsure = trial_->steps < kSureSteps || watch_.any_suspect() || links_.any_suspect();
  if (!now.worse) {
    end_trial(context, "kept", now);
  } else if (!unsure && !trial_->disturbed) {
    roll_back(context, now);
  } else if (trial_->disturbed || trial_->steps >= kMostSteps) {
    end_trial(context, "undecided", now);
  }
}

void JobLoop::conditions_changed() {
  if (trial_) {
    trial_->walls.clear();
  }
}

JobLoop::Trial JobLoop::close_trial(LoopContext& context, std::string_view verdict,
                                    const Comparison& now) {
  Trial trial = *std::exchange(trial_, std::nullopt);
  trial.row.open = false;
  context.out.journal(trial.row);
  amend(context, trial.row.decision,
        {{"observed_after_s", now.observed_s}, {"verify", std::string(verdict)}});
  return trial;
}

void JobLoop::end_trial(LoopContext& context, std::string_view verdict, const Comparison& now) {
  static_cast<void>(close_trial(context, verdict, now));
  context.out.event(
      job_->name, "verify", "",
      fmt::format("plan {} {}: {:.3f} s a step observed, {:.3f} s promised, {:.3f} s before",
                  active_->epoch,
                  verdict == "kept" ? "kept" : "kept, though other things changed meanwhile",
                  now.observed_s, now.promised_s, now.before_s),
      {{"observed_after_s", now.observed_s},
       {"step_after_s", now.promised_s},
       {"step_before_s", now.before_s}});
}

void JobLoop::roll_back(LoopContext& context, const Comparison& now) {
  const Trial trial = close_trial(context, "rolled_back", now);
  const double rest_s =
      note_failure(context, std::set(trial.row.nodes.begin(), trial.row.nodes.end()));
  const std::string sentence = fmt::format(
      "plan {} made the step slower: {:.3f} s observed, {:.3f} s before, {:.3f} s promised; going "
      "back to the former plan, the idea rests for {:.0f} s",
      active_->epoch, now.observed_s, now.before_s, now.promised_s, rest_s);
  context.out.event(job_->name, "verify", "", sentence, {{"observed_after_s", now.observed_s}});
  std::string trouble = context.auto_mode.on ? obstacle(context, *trial.old)
                                             : "automatic replans are " + context.auto_mode.reason;
  if (trouble.empty()) {
    trouble = defect(context, *trial.old);
  }
  if (!trouble.empty()) {
    record(context,
           new_decision("rollback_impossible", sentence + "; impossible now: " + trouble, {}),
           false);
    return;
  }
  static_cast<void>(begin_switch(context, *trial.old, new_decision("rollback", sentence, {}),
                                 Trial{}, "rollback", std::nullopt));
}

}  // namespace tapas::daemon
