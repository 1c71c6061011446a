#pragma once

#include "base/ids.h"
#include "daemon/core/level.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace tapas::daemon {

/// The ranks of one node that do the same work. When all of them are slow by a little, they are
/// seen together long before each of them alone: their mean has less noise. The one that is most
/// suspect alone does not count, so a single slow device is no slow team.
class Team {
 public:
  explicit Team(std::vector<RankId> ranks) : ranks_(std::move(ranks)) {}

  /// `latest`: this step's value of each rank by RankId, NaN = none; `levels`: of each rank;
  /// `noise`: of the mean of a team, as far as all teams show it: uneven batches hit all ranks of a
  /// node. Returns how far the mean moved since the last step.
  std::optional<double> observe(const std::vector<double>& latest, const std::vector<Level>& levels,
                                const Sensitivity& sensitivity, double noise,
                                const StepStamp& stamp);
  void restart() { level_.restart(); }
  void dismiss() { level_.dismiss(); }

  [[nodiscard]] const std::vector<RankId>& ranks() const { return ranks_; }
  /// Of how far its ranks lie above their baselines.
  [[nodiscard]] const Level& level() const { return level_; }
  /// Alarmed, and half of its ranks at least lie there.
  [[nodiscard]] bool slow(const std::vector<Level>& levels, const Sensitivity& sensitivity) const;
  /// It is clear that this one of its ranks is not slow with the others, or it is blamed already.
  [[nodiscard]] bool without(const Level& rank) const;
  /// Beside some that are slow by `level`, the others are near that, too.
  [[nodiscard]] bool joins(double level) const;
  /// May still turn out to be slow.
  [[nodiscard]] bool undecided() const;

 private:
  static constexpr std::uint32_t kLearnSteps = 8;
  // What is left of the differences of its devices, which their own baselines take in.
  static constexpr double kTypicalOffset = 0.01;

  std::vector<RankId> ranks_;
  Level level_{kLearnSteps, std::numeric_limits<double>::max(), kTypicalOffset};
  std::vector<RankId> counted_;  // scratch of one step
};

}  // namespace tapas::daemon
