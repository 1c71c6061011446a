#pragma once

#include "base/ids.h"
#include "daemon/core/level.h"
#include "daemon/core/roles.h"
#include "daemon/core/step_window.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace tapas::daemon {

/// What ranks wait for their next batch. A rank whose own data loader is late shows it there and
/// nowhere else, those that wait for the rank show it in their collectives; so unlike other waits
/// this one points at its cause. Costs nothing while no rank reports any.
class InputWatch {
 public:
  explicit InputWatch(std::uint32_t ranks) : late_(ranks, rank_level()) {}

  /// A new epoch: all learn again, blames stay.
  void restart();
  /// Another device sits in the slot.
  void forget(RankId rank);

  /// A plain step of which most ranks took `wall_s`.
  void observe(const WholeStep& step, const Roles& roles, double wall_s, const StepStamp& stamp);

  /// Of a rank: how many times as long a step takes for what it waits more than others do.
  [[nodiscard]] const Level& level(RankId rank) const { return late_[rank.value()]; }
  /// Not known to be late, but is by now, while most nodes of its stage are not.
  [[nodiscard]] std::vector<RankId> late(const Roles& roles) const;
  void blame(RankId rank) { late_[rank.value()].blame(); }
  /// Blamed before the daemon was restarted, in log units: holds until it is seen to be well.
  void restore(RankId rank, double baseline, double level) {
    late_[rank.value()].restore(baseline, level);
  }

  [[nodiscard]] bool any_blamed() const;
  /// Back in time, or without work; cleared.
  [[nodiscard]] std::vector<RankId> take_recovered(const Roles& roles);
  /// How many times as long a step takes because of whoever waits longest, against what it was
  /// while learning.
  [[nodiscard]] double step_ratio() const;

 private:
  static Level rank_level();
  [[nodiscard]] Sensitivity sensitivity() const;

  std::vector<Level> late_;  ///< per rank, log
  Level longest_{kLearnSteps, kAnyLevel};
  NoiseEstimate noise_;
  NoiseEstimate longest_noise_;
  std::vector<double> previous_;  ///< per rank; empty until one reports a wait
  double previous_longest_ = 0;
  std::uint32_t unwaited_ = 0;  ///< steps before in which nobody waited, up to kLearnSteps
  std::uint32_t watched_ = 1;

  static constexpr std::uint32_t kLearnSteps = 16;
  static constexpr double kAnyLevel = std::numeric_limits<double>::max();
};

}  // namespace tapas::daemon
