#pragma once

#include "base/result.h"
#include "daemon/core/answers.h"
#include "daemon/core/attribution.h"
#include "daemon/core/core_config.h"
#include "daemon/core/event.h"
#include "solver/replan/micro_replan.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tapas::daemon {

/// Who wants the plan changed.
enum class Trigger : std::uint8_t {
  kCulprit,   ///< a verdict named nodes
  kRecovery,  ///< a culprit is healthy again
  kOperator,  ///< forced
  kDrain,
};

/// What the answers are priced over; all times are job time.
struct Outlook {
  double healthy_step_s = 0;  ///< the pace at which nothing is lost
  double rest_s = 0;          ///< how long the condition should still last
  std::string rest_basis;     ///< why so long, half a sentence
  double lost_s = 0;          ///< to it so far, since the running plan began
  /// The condition moved since a plan was made for it: what follows it now will have to follow it
  /// again, so a switch has to earn its cost twice.
  bool wanders = false;
};

/// The answers to one question, priced. Proposals must live as long.
struct Priced {
  std::vector<AnswerPrice> prices;           ///< waiting first
  std::size_t best = 0;                      ///< of them, that stands for `change`; else waiting
  const solver::Proposal* change = nullptr;  ///< cheapest one; null when none is proposed
  Answer answer = Answer::kWait;             ///< that it is
  double lost_by_waiting_s = 0;
  double lost_by_change_s = 0;
};

/// What an automatic switch is weighed against; all times are job time.
struct Circumstances {
  Trigger trigger = Trigger::kCulprit;
  std::string cause;  ///< "node n037 computes 1.60 times as long as its equals"
  bool auto_replan = false;
  std::string auto_reason;
  double cooldown_left_s = 0;
  bool budget_left = true;
  double quarantine_left_s = 0;  ///< the same idea made things worse before
  std::string obstacle;          ///< why no plan can be switched to now: agents away, ...
  std::string defect;            ///< why the proposed plan itself may not be used
  double usual_step_s = 0;       ///< of the running plan before anything of it was slow
  double observed_step_s = 0;    ///< lately
  double step_noise = 0;         ///< of one step, log units

  /// The cause, and what it does to the step.
  [[nodiscard]] std::string sentence_start() const;
};

/// Whether to act, and why. `sentence` is for people, `code` for programs.
struct Choice {
  bool act = false;
  std::string code;
  std::string sentence;
  double retry_after_s = 0;  ///< job time after which the same question is worth asking again
  std::string decided_by;    ///< the setting or rule, with its value: "min_gain_ratio 0.02"
};

/// Job time lost over the outlook at `step_s` a step, after `cost_s` without a step.
[[nodiscard]] double loss_s(const Outlook& outlook, double step_s, double cost_s);

/// Prices waiting, the proposal and what changes less; an operator's or a drain's question is
/// answered by the proposal itself, whatever it costs. `bound_step_s`: no plan at all is faster on
/// healthy devices; 0 = not known.
[[nodiscard]] Priced price(const Outlook& outlook, Trigger trigger, const solver::Plan& current,
                           const Result<solver::Proposal>& proposal,
                           const std::vector<solver::Proposal>& lesser, double bound_step_s);

/// Weighs the cheapest change against waiting. An operator's order and a drain skip what only
/// protects against haste (observe-only, cooldown, budget, quarantine, thresholds), never what
/// protects the plan.
[[nodiscard]] Choice weigh(const CoreConfig& config, const Circumstances& circumstances,
                           const Outlook& outlook, const Result<solver::Proposal>& proposal,
                           const Priced& priced);

/// Expected length of a fresh episode: the configured one, else what such faults last in the mean.
[[nodiscard]] double episode_prior_s(const CoreConfig& config, Cause cause, std::uint32_t devices);

/// How long a condition should still last that has lasted for `age_s`: what outlived the prior is
/// expected to last as long again.
[[nodiscard]] double expected_rest_s(double prior_s, double age_s);

/// How long a device must stay well before work moves back to it after the n-th episode in a row;
/// nothing after the first.
[[nodiscard]] double flap_quarantine_s(const CoreConfig& config, std::uint32_t episodes);

/// Pause that a job keeps after its n-th automatic switch for the same culprit within an hour:
/// grows eightfold each time, so that a flapping node cannot move the job around.
[[nodiscard]] double cooldown_s(const CoreConfig& config, std::size_t recent_switches);

}  // namespace tapas::daemon
