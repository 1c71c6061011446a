#pragma once

#include "daemon/core/attribution.h"
#include "tests/detect/trace.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The detector and rules in use elsewhere, all asked the same way.
namespace tapas::daemon::testing {

/// What a rule says at a step.
struct Call {
  Cause cause = Cause::kNothing;
  std::vector<RankId> ranks;  ///< named as slow, ascending
  std::vector<std::uint32_t> stages;
  std::string sentence;
};

class Rule {
 public:
  virtual ~Rule() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  virtual void new_session() = 0;
  /// Something new that it has to say after this step.
  virtual std::optional<Call> observe(const WholeStep& step) = 0;
};

/// The daemon's own: Watch and attribute(). The trace must outlive it.
[[nodiscard]] std::unique_ptr<Rule> detector(const Trace& trace);

/// Rules written from their descriptions; each compares compute among the ranks of a stage and
/// speaks when it names ranks it did not name before.
/// Median of a window above twice the median of the ranks (DLRover's node check).
[[nodiscard]] std::unique_ptr<Rule> twice_the_median(const Trace& trace);
/// Score below 0.75: median of the fastest rank over its own median, in a window (NVRx).
[[nodiscard]] std::unique_ptr<Rule> relative_score(const Trace& trace);
/// Bayesian change point (p > 0.9) of the step time, verified by means that differ by 10 %, then
/// the ranks that lie 10 % above the median of their group (Greyhound).
[[nodiscard]] std::unique_ptr<Rule> change_point(const Trace& trace);

}  // namespace tapas::daemon::testing
