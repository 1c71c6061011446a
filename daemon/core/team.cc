#include "daemon/core/team.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// Standard errors from which on a team may be about to alarm.
constexpr double kUndecided = 3.5;
// Beside slow ranks, the others count as slow with so many, when they lie so near to their level.
constexpr double kJoinErrors = 4;
constexpr double kJoinShare = 0.6;
// Who lies so many standard errors nearer to the baseline than to the team is not slow with it.
constexpr double kClearErrors = 2;
// Of a median of a few values, the mean's being one.
constexpr double kMedianError = 1.25;
constexpr std::uint32_t kFew = 8;
// Jitter of a team is never taken to be smaller.
constexpr double kLeastNoise = 0.01;

}  // namespace

std::optional<double> Team::observe(const std::vector<double>& latest,
                                    const std::vector<Level>& levels,
                                    const Sensitivity& sensitivity, double noise,
                                    const StepStamp& stamp) {
  counted_.clear();
  for (const RankId rank : ranks_) {
    const Level& level = levels[rank.value()];
    if (!std::isnan(latest[rank.value()]) && !level.learning() && !level.blamed() &&
        !level.alarmed()) {
      counted_.push_back(rank);
    }
  }
  if (counted_.empty()) {
    const bool all_blamed = std::all_of(ranks_.begin(), ranks_.end(), [&](RankId rank) {
      return levels[rank.value()].blamed() || levels[rank.value()].learning();
    });
    if (all_blamed) {
      level_.restart();
    }
    return std::nullopt;
  }
  if (counted_.size() > 1) {
    counted_.erase(std::max_element(counted_.begin(), counted_.end(), [&](RankId a, RankId b) {
      return levels[a.value()].confidence() < levels[b.value()].confidence();
    }));
  }
  double sum = 0;
  double variance = 0;
  for (const RankId rank : counted_) {
    const Level& level = levels[rank.value()];
    sum += latest[rank.value()] - level.baseline();
    variance += level.noise() * level.noise();
  }
  const auto count = static_cast<double>(counted_.size());
  Sensitivity together = sensitivity;
  together.noise = std::max({noise, std::sqrt(variance) / count, kLeastNoise});
  const double before = level_.recent(1);
  level_.observe(sum / count, together, stamp);
  return std::abs(sum / count - before);
}

bool Team::slow(const std::vector<Level>& levels, const Sensitivity& sensitivity) const {
  if (!level_.holds(sensitivity)) {
    return false;
  }
  const auto there = [&](RankId rank) {
    const Level& level = levels[rank.value()];
    return level.alarmed() ||
           level.recent(level_.run()) - level.baseline() > level_.deviation() / 2;
  };
  return std::count_if(ranks_.begin(), ranks_.end(), there) * 2 >=
         static_cast<std::ptrdiff_t>(ranks_.size());
}

bool Team::without(const Level& level) const {
  const auto steps = static_cast<double>(std::clamp<std::uint32_t>(level_.run(), 1, kFew));
  const double error = kMedianError * level.noise() / std::sqrt(steps);
  return level.blamed() || level.learning() ||
         level.recent(level_.run()) - level.baseline() <
             level_.deviation() / 2 - kClearErrors * error;
}

bool Team::joins(double level) const {
  return level_.confidence() > kJoinErrors && level_.deviation() > kJoinShare * level;
}

bool Team::undecided() const { return level_.confidence() > kUndecided; }

}  // namespace tapas::daemon
