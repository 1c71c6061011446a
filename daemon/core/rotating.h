#pragma once

#include "daemon/core/level.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tapas::daemon {

/// Of many, another one is slow in each step: uneven batches or pauses. Watches how far the one
/// that is furthest off lies above its own latest values; one that stays slow soon adds nothing to
/// that.
class Rotating {
 public:
  /// How far the furthest of `groups` groups of `size` values lies above zero in half of all steps
  /// when all values are independent and standard normal, a group's value being its lower median.
  [[nodiscard]] static double by_chance(std::uint32_t size, std::uint32_t groups);

  void restart();
  void clear() { level_.clear(); }
  /// What is no word worth when it is so from the start.
  void allow(double furthest) { level_.allow(furthest); }
  void observe(double furthest, std::uint32_t who, const Sensitivity& sensitivity,
               const StepStamp& stamp);

  [[nodiscard]] bool alarmed() const { return level_.alarmed(); }
  /// The alarm holds and the blame goes round.
  [[nodiscard]] bool holds(const Sensitivity& sensitivity) const;
  /// No alarm of its own yet, but it rises about as much as the step time, whose alarm holds.
  [[nodiscard]] bool may_explain(double rise) const;
  [[nodiscard]] const Level& level() const { return level_; }
  void dismiss() { level_.dismiss(); }
  void blame();

 private:
  [[nodiscard]] bool goes_round() const;

  static constexpr std::uint32_t kLearnSteps = 16;
  static constexpr std::size_t kRecent = 16;

  Level level_{kLearnSteps, std::numeric_limits<double>::max()};
  std::array<std::uint32_t, kRecent> who_{};
  std::size_t next_ = 0;
};

}  // namespace tapas::daemon
