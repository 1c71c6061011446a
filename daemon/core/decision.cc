#include "daemon/core/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// Asked again after this, as an episode that goes on is worth more and more.
constexpr double kReviewS = 60.0;
constexpr double kObstacleS = 10.0;

}  // namespace

double expected_rest_s(double prior_s, double age_s) { return std::max(prior_s, age_s); }

double cooldown_s(const CoreConfig& config, std::size_t recent_switches) {
  if (recent_switches == 0) {
    return 0;
  }
  const double growth =
      std::pow(8.0, static_cast<double>(std::min<std::size_t>(recent_switches - 1, 4)));
  return std::min(config.cooldown_s * growth, std::max(config.cooldown_s, 3600.0));
}

Choice weigh(const CoreConfig& config, const Circumstances& circumstances,
             const Result<solver::Proposal>& proposal) {
  const std::string& cause = circumstances.cause;
  const bool automatic =
      circumstances.trigger == Trigger::kCulprit || circumstances.trigger == Trigger::kRecovery;
  if (!proposal) {
    return {false, "replan_failed",
            fmt::format("{}; no new plan: {}", cause, proposal.error().message), kReviewS};
  }
  if (!proposal->improves) {
    return {false, "no_better_plan", fmt::format("{}; {}", cause, proposal->reason), kReviewS};
  }
  if (!circumstances.defect.empty()) {
    return {false, "plan_refused",
            fmt::format("{}; the proposed plan is refused: {}", cause, circumstances.defect),
            kReviewS};
  }
  if (automatic) {
    const double gain_ratio = 1.0 - proposal->step_after_s / proposal->step_before_s;
    if (gain_ratio < config.min_gain_ratio) {
      return {false, "gain_too_small",
              fmt::format("{}; the best plan gains {:.1f} % of the step time, below the {:.1f} % "
                          "that are worth a switch",
                          cause, gain_ratio * 100, config.min_gain_ratio * 100),
              kReviewS};
    }
    if (proposal->net_gain_s <= 0) {
      return {
          false, "not_worth_it",
          fmt::format("{}; waiting: a switch costs {:.1f} s, more than it saves in the time the "
                      "condition should last",
                      cause, proposal->switch_s),
          kReviewS};
    }
    if (!circumstances.auto_replan) {
      return {false, "observe_only",
              fmt::format("{}; observing only ({}): {}", cause, circumstances.auto_reason,
                          proposal->reason),
              kReviewS};
    }
    if (circumstances.quarantine_left_s > 0) {
      return {false, "quarantined",
              fmt::format("{}; the same change made the job slower before and is not tried again "
                          "for {:.0f} s",
                          cause, circumstances.quarantine_left_s),
              circumstances.quarantine_left_s};
    }
    if (circumstances.cooldown_left_s > 0) {
      return {false, "cooldown",
              fmt::format("{}; the last automatic switch is too recent, waiting {:.0f} s more",
                          cause, circumstances.cooldown_left_s),
              circumstances.cooldown_left_s};
    }
    if (!circumstances.budget_left) {
      return {false, "budget",
              fmt::format("{}; {} automatic switches within an hour are used up", cause,
                          config.replans_per_hour),
              kReviewS};
    }
  }
  if (!circumstances.obstacle.empty()) {
    return {false, "agents_missing",
            fmt::format("{}; no switch now: {}", cause, circumstances.obstacle), kObstacleS};
  }
  const auto code = [&] {
    switch (circumstances.trigger) {
      case Trigger::kCulprit:
        return "micro_replan";
      case Trigger::kRecovery:
        return "recovery";
      case Trigger::kDrain:
        return "drain";
      case Trigger::kOperator:
        break;
    }
    return "operator_replan";
  };
  return {true, code(), fmt::format("{}; {}", cause, proposal->reason), 0};
}

}  // namespace tapas::daemon
