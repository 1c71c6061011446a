#pragma once

#include "daemon/core/level.h"
#include "daemon/core/roles.h"
#include "daemon/core/step_window.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace tapas::daemon {

/// What the tokens of packed batches explain of the ranks' compute. How much that is gets learnt:
/// compute grows with some power of the tokens, nearly 1 where most of it is linear, more with long
/// attention, less with fixed costs; 0 when the hints say nothing about it. The power is the one
/// that leaves least of how the ranks change from step to step. Costs nothing without hints.
class WorkHints {
 public:
  explicit WorkHints(std::uint32_t ranks) : tokens_(ranks), before_(ranks) {}

  /// The ranks do other work: learnt again.
  void restart();
  /// `log_compute`: of each rank, NaN = not reported. Takes out what tokens explain, of all ranks
  /// or of none: when one does not tell its tokens, its compute could not be compared.
  void take_out(const WholeStep& step, const Roles& roles, std::vector<double>& log_compute,
                const StepStamp& stamp);

  [[nodiscard]] double power() const;
  /// How many times as long a step takes because of its largest batch, against what it was while
  /// learning.
  [[nodiscard]] double step_ratio() const;

 private:
  void learn(const std::vector<double>& log_compute);

  static constexpr std::uint32_t kLearnSteps = 16;

  std::vector<double> tokens_;  ///< log, per rank
  struct Before {
    double tokens = 0;
    double compute = std::numeric_limits<double>::quiet_NaN();
  };
  std::vector<Before> before_;
  bool known_ = false;
  double usual_ = 0;  ///< log of the tokens that count as one
  double together_ = 0;
  double alone_ = 0;
  Level largest_{kLearnSteps, std::numeric_limits<double>::max()};
  NoiseEstimate noise_;
  double previous_ = 0;
};

}  // namespace tapas::daemon
