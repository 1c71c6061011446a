#pragma once

#include "base/result.h"
#include "daemon/core/core.h"
#include "solver/replan/micro_replan.h"

#include <optional>
#include <string>

namespace tapas::daemon {

/// Who wants the plan changed.
enum class Trigger : std::uint8_t {
  kCulprit,   ///< a verdict named nodes
  kRecovery,  ///< a culprit is healthy again
  kOperator,  ///< forced
  kDrain,
};

/// What an automatic switch is weighed against; all times are job time.
struct Circumstances {
  Trigger trigger = Trigger::kCulprit;
  std::string cause;  ///< start of the sentence: "node n037 computes 1.60 times as long"
  bool auto_replan = false;
  std::string auto_reason;
  double cooldown_left_s = 0;
  bool budget_left = true;
  double quarantine_left_s = 0;  ///< the same idea made things worse before
  std::string obstacle;          ///< why no plan can be switched to now: agents away, ...
  std::string defect;            ///< why the proposed plan itself may not be used
};

/// Whether to act, and why. `sentence` is for people, `code` for programs.
struct Choice {
  bool act = false;
  std::string code;
  std::string sentence;
  double retry_after_s = 0;  ///< job time after which the same question is worth asking again
};

/// Weighs a proposal. An operator's order and a drain skip what only protects against haste
/// (observe-only, cooldown, budget, quarantine, thresholds), never what protects the plan.
[[nodiscard]] Choice weigh(const CoreConfig& config, const Circumstances& circumstances,
                           const Result<solver::Proposal>& proposal);

/// How long a condition should still last that has lasted for `age_s`: what outlived the prior is
/// expected to last as long again.
[[nodiscard]] double expected_rest_s(double prior_s, double age_s);

/// Pause that a job keeps after its n-th automatic switch for the same culprit within an hour:
/// grows eightfold each time, so that a flapping node cannot move the job around.
[[nodiscard]] double cooldown_s(const CoreConfig& config, std::size_t recent_switches);

}  // namespace tapas::daemon
