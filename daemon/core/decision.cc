#include "daemon/core/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// Asked again after this, as an episode that goes on is worth more and more.
constexpr double kReviewS = 60.0;
constexpr double kSoonestReviewS = 5.0;
constexpr double kObstacleS = 10.0;

// Greyhound (USENIX ATC 2025), sections 3.2 to 3.4: how long episodes lasted in the mean in its
// single-node jobs, on links in its four-node jobs, and in jobs of 512 GPUs and more.
constexpr double kComputeS = 10 * 60.0;
constexpr double kLinkS = 24 * 60.0;
constexpr double kLargeJobS = 72 * 60.0;
constexpr std::uint32_t kLargeJob = 512;

// The model has to explain this share of what a step takes longer than usual, where that is more
// than so much, and than so many times the step's noise. A slow NIC of which it explained 46 % was
// answered as promised; where it knew next to nothing, the job got slower.
constexpr double kExplained = 1.0 / 3;
constexpr double kLeastLoss = 0.05;
constexpr double kNoises = 3;
// A step that is longer by less is not worth a word.
constexpr double kLeastGain = 0.01;

AnswerPrice priced_as(const Outlook& outlook, std::string_view answer, double step_s,
                      double cost_s) {
  return {std::string(answer), step_s, cost_s, loss_s(outlook, step_s, cost_s), false, {}};
}

/// What of the loss so far the change would have avoided.
double avoidable_s(const Outlook& outlook, const solver::Proposal& change) {
  const double lost = 1 - outlook.healthy_step_s / change.step_before_s;
  const double kept = 1 - outlook.healthy_step_s / change.step_after_s;
  return lost > 0 ? outlook.lost_s * std::max(0.0, lost - kept) / lost : 0;
}

/// What the change has to earn.
double due_s(const Outlook& outlook, const solver::Proposal& change) {
  return outlook.wanders ? 2 * change.switch_s : change.switch_s;
}

/// Job time until the avoidable loss is what the change has to earn.
double until_due_s(const Outlook& outlook, const solver::Proposal& change) {
  const double rate = outlook.healthy_step_s * (1 / change.step_after_s - 1 / change.step_before_s);
  return rate > 0 ? (due_s(outlook, change) - avoidable_s(outlook, change)) / rate : kReviewS;
}

bool is_automatic(Trigger trigger) {
  return trigger == Trigger::kCulprit || trigger == Trigger::kRecovery;
}

std::string_view to_string(Trigger trigger) {
  switch (trigger) {
    case Trigger::kCulprit:
      return "verdict";
    case Trigger::kRecovery:
      return "recovery";
    case Trigger::kDrain:
      return "drain";
    case Trigger::kOperator:
      break;
  }
  return "operator";
}

std::string code_of(Trigger trigger) {
  switch (trigger) {
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
}

/// Why plans cannot be priced: most of what the job lost since all was well is not in the model, so
/// that its promises would not come true. Empty when they can.
std::string unexplained(const Circumstances& now, const solver::Proposal& proposal) {
  const double lost_s = now.observed_step_s - now.usual_step_s;
  const double explained_s = std::max(0.0, proposal.step_before_s - now.usual_step_s);
  const double noise_s = now.usual_step_s * std::max(kLeastLoss, kNoises * now.step_noise);
  if (now.usual_step_s <= 0 || lost_s <= noise_s || explained_s >= kExplained * lost_s) {
    return {};
  }
  return fmt::format(
      "but that explains only {:.3f} s of the {:.3f} s more: something else slows the job that no "
      "plan accounts for, so none is tried; look for it (network, storage, other users), or "
      "tapasctl replan does what helps against the known part",
      explained_s, lost_s);
}

/// Whether the cheapest change is worth its price, and by which rule.
struct Value {
  bool worth_it = false;
  std::string code;
  std::string sentence;
  double retry_after_s = kReviewS;
  std::string decided_by;
};

/// Ski rental: at once when the expected rest pays for the change, at the latest when the loss that
/// it would have avoided so far equals its cost.
Value value_of(const CoreConfig& config, const Outlook& outlook, const Priced& priced) {
  const solver::Proposal& change = *priced.change;
  const double gain_ratio = 1.0 - change.step_after_s / change.step_before_s;
  if (gain_ratio < config.min_gain_ratio) {
    return {false, "gain_too_small",
            fmt::format("the best plan gains {:.1f} % of the step time, below the {:.1f} % that "
                        "are worth a switch",
                        gain_ratio * 100, config.min_gain_ratio * 100),
            kReviewS, fmt::format("min_gain_ratio {}", config.min_gain_ratio)};
  }
  const std::string over = fmt::format("over the {:.0f} s that this should still last ({})",
                                       outlook.rest_s, outlook.rest_basis);
  const double avoidable = avoidable_s(outlook, change);
  const double due = due_s(outlook, change);
  const double back = due - change.switch_s;
  const std::string and_back =
      back > 0 ? fmt::format(" and {:.1f} s when it moves again", back) : std::string();
  if (priced.lost_by_change_s + back < priced.lost_by_waiting_s) {
    return {true, "",
            fmt::format("to wait would lose {:.1f} s {}, this {:.1f} s{}", priced.lost_by_waiting_s,
                        over, priced.lost_by_change_s, and_back),
            0, outlook.rest_basis};
  }
  if (avoidable >= due) {
    return {true, "",
            fmt::format("this would have saved {:.1f} s so far, more than it costs", avoidable), 0,
            "loss so far"};
  }
  return {false, "not_worth_it",
          fmt::format("to wait loses {:.1f} s {}, to {} {:.1f} s{}; waiting, at most until what it "
                      "would have saved ({:.1f} s so far) reaches {:.1f} s",
                      priced.lost_by_waiting_s, over, in_words(priced.answer),
                      priced.lost_by_change_s, and_back, avoidable, due),
          std::clamp(until_due_s(outlook, change), kSoonestReviewS, kReviewS), outlook.rest_basis};
}

}  // namespace

double loss_s(const Outlook& outlook, double step_s, double cost_s) {
  const double running = std::max(0.0, outlook.rest_s - cost_s);
  const double share = step_s > 0 ? 1 - outlook.healthy_step_s / step_s : 0;
  return std::min(cost_s, outlook.rest_s) + running * std::max(0.0, share);
}

Priced price(const Outlook& outlook, Trigger trigger, const solver::Plan& current,
             const Result<solver::Proposal>& proposal, const std::vector<solver::Proposal>& lesser,
             double bound_step_s) {
  Priced out;
  if (!proposal) {
    return out;
  }
  AnswerPrice& waiting = out.prices.emplace_back(
      priced_as(outlook, to_string(Answer::kWait), proposal->step_before_s, 0));
  out.lost_by_waiting_s = waiting.loss_s;
  const auto add = [&](const solver::Proposal& change) {
    const Answer answer = answer_of(current, change.plan);
    const AnswerPrice& entry = out.prices.emplace_back(
        priced_as(outlook, to_string(answer), change.step_after_s, change.switch_s));
    if (out.change == nullptr || (is_automatic(trigger) && entry.loss_s < out.lost_by_change_s)) {
      out.change = &change;
      out.answer = answer;
      out.lost_by_change_s = entry.loss_s;
      out.best = out.prices.size() - 1;
    }
  };
  if (proposal->improves) {
    add(*proposal);
    for (const solver::Proposal& change : lesser) {
      add(change);
    }
    if (bound_step_s > 0) {
      out.prices.push_back(priced_as(outlook, "full_replan", bound_step_s, proposal->switch_s));
      out.prices.back().note =
          "at best, and it means a restart of the job: tapasctl whatif --full says more";
    }
  }
  return out;
}

std::string Circumstances::sentence_start() const {
  const bool slower = trigger == Trigger::kCulprit && usual_step_s > 0 &&
                      observed_step_s > usual_step_s * (1 + kLeastGain);
  return slower ? fmt::format("{}, and a step takes {:.3f} s instead of {:.3f} s", cause,
                              observed_step_s, usual_step_s)
                : cause;
}

Choice weigh(const CoreConfig& config, const Circumstances& circumstances, const Outlook& outlook,
             const Result<solver::Proposal>& proposal, const Priced& priced) {
  const auto hold = [&](std::string code, std::string_view what, double retry_after_s,
                        std::string decided_by) {
    return Choice{false, std::move(code),
                  fmt::format("{}; {}", circumstances.sentence_start(), what), retry_after_s,
                  std::move(decided_by)};
  };
  if (!proposal) {
    return hold("replan_failed", "no new plan: " + proposal.error().message, kReviewS, "solver");
  }
  if (circumstances.trigger == Trigger::kCulprit) {
    if (const std::string doubt = unexplained(circumstances, *proposal); !doubt.empty()) {
      return hold("unexplained", doubt, kReviewS, "explained share of the loss");
    }
  }
  if (priced.change == nullptr) {
    const bool slow = circumstances.trigger == Trigger::kCulprit;
    return hold("no_better_plan",
                proposal->reason + (slow ? "; to repair it or to add a spare would help" : ""),
                kReviewS, "solver");
  }
  if (!circumstances.defect.empty()) {
    return hold("plan_refused", "the proposed plan is refused: " + circumstances.defect, kReviewS,
                "plan check");
  }
  const solver::Proposal& change = *priced.change;
  std::string reason = fmt::format(
      "best is to {}: {:.3f} s a step instead of {:.3f} s (no plan is below {:.3f} s), for a pause "
      "of {:.1f} s",
      change.change, change.step_after_s, change.step_before_s, change.lower_bound_s,
      change.switch_s);
  std::string decided_by(to_string(circumstances.trigger));
  if (is_automatic(circumstances.trigger)) {
    const Value value = value_of(config, outlook, priced);
    if (!value.worth_it) {
      return hold(value.code, value.sentence, value.retry_after_s, value.decided_by);
    }
    decided_by = value.decided_by;
    reason += "; " + value.sentence;
    if (!circumstances.auto_replan) {
      return hold("observe_only",
                  fmt::format("observing only ({}): {}; tapasctl replan does it",
                              circumstances.auto_reason, reason),
                  kReviewS, "auto_replan false");
    }
    if (circumstances.quarantine_left_s > 0) {
      return hold("quarantined",
                  fmt::format("the same change made the job slower before and is not tried again "
                              "for {:.0f} s; tapasctl replan does it all the same",
                              circumstances.quarantine_left_s),
                  circumstances.quarantine_left_s, "rollback");
    }
    if (circumstances.cooldown_left_s > 0) {
      return hold("cooldown",
                  fmt::format("the last automatic switch is too recent, waiting {:.0f} s more",
                              circumstances.cooldown_left_s),
                  circumstances.cooldown_left_s, fmt::format("cooldown_s {}", config.cooldown_s));
    }
    if (!circumstances.budget_left) {
      return hold(
          "budget",
          fmt::format("{} automatic switches within an hour are used up; tapasctl replan does "
                      "one more",
                      config.replans_per_hour),
          kReviewS, fmt::format("replans_per_hour {}", config.replans_per_hour));
    }
  }
  if (!circumstances.obstacle.empty()) {
    return hold("agents_missing", "no switch now: " + circumstances.obstacle, kObstacleS, "agents");
  }
  return {true, code_of(circumstances.trigger),
          fmt::format("{}; {}", circumstances.sentence_start(), reason), 0, std::move(decided_by)};
}

double episode_prior_s(const CoreConfig& config, Cause cause, std::uint32_t devices) {
  if (config.episode_prior_s > 0) {
    return config.episode_prior_s;
  }
  const double by_cause = cause == Cause::kDevice || cause == Cause::kHost ? kComputeS : kLinkS;
  return devices >= kLargeJob ? std::max(by_cause, kLargeJobS) : by_cause;
}

double expected_rest_s(double prior_s, double age_s) { return std::max(prior_s, age_s); }

double flap_quarantine_s(const CoreConfig& config, std::uint32_t episodes) {
  return episodes < 2 ? 0 : config.flap_quarantine_s * std::pow(4.0, std::min(episodes - 2, 3U));
}

double cooldown_s(const CoreConfig& config, std::size_t recent_switches) {
  if (recent_switches == 0) {
    return 0;
  }
  const double growth =
      std::pow(8.0, static_cast<double>(std::min<std::size_t>(recent_switches - 1, 4)));
  return std::min(config.cooldown_s * growth, std::max(config.cooldown_s, 3600.0));
}

}  // namespace tapas::daemon
