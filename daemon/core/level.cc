#include "daemon/core/level.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// Less than this is what healthy devices differ by; nobody would act on it.
constexpr double kLeastSlack = 0.025;
// Jitter is never taken to be smaller, or a quiet job would alarm on nothing.
constexpr double kLeastSigma = 0.01;
// Beyond the slack one step adds at most this many sigmas.
constexpr double kClipSigmas = 4.0;
// Values that shape the baseline after the learning steps: few, so that no drift is followed; more
// when noise asks for it.
constexpr double kBaselineSteps = 64;
constexpr double kMostBaselineSteps = 512;
// A change of a culprit's level below this is not worth another look (about 16 %).
constexpr double kLeastMove = 0.15;
// How many of the latest values tell where a series lies that has raised no alarm of its own.
constexpr std::size_t kFewSteps = 4;
// Median of |difference of two normal values| = 0.6745 * sqrt(2) * sigma.
constexpr double kSigmaPerDifference = 1.0 / (0.6745 * 1.41421356);

}  // namespace

Sensitivity Sensitivity::of(double sigma, std::uint32_t steps) {
  const double slack = std::max(sigma, kLeastSlack);
  const double per_step = kClipSigmas * std::max(sigma, kLeastSigma);
  return {slack, slack + per_step, per_step * (static_cast<double>(steps) - 0.1)};
}

void NoiseEstimate::add(double typical_difference) {
  const double sample = typical_difference * kSigmaPerDifference;
  count_ = std::min(count_ + 1, 32U);
  sigma_ += (sample - sigma_) / count_;
}

void Level::restart() {
  seen_ = blamed_ ? learn_steps_ : 0;
  ring_size_ = ring_next_ = 0;
  accumulated_ = improved_ = 0;
  run_ = 0;
  alarmed_ = false;
  recovered_ = false;
}

double Level::recent(std::size_t count) const {
  std::array<double, kRing> sorted;
  count = std::min(count, ring_size_);
  if (count == 0) {
    return 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    sorted[i] = ring_[(ring_next_ + kRing - 1 - i) % kRing];
  }
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

void Level::observe(double value, const Sensitivity& sensitivity, const StepStamp& stamp) {
  ring_[ring_next_] = value;
  ring_next_ = (ring_next_ + 1) % kRing;
  ring_size_ = std::min(ring_size_ + 1, kRing);
  if (learning()) {
    if (++seen_ == learn_steps_) {
      baseline_ = recent() > usual_ + spread_ ? usual_ : recent();
      ++times_learnt_;
    }
    return;
  }
  const double deviation = value - baseline_;
  if (blamed_) {
    // Half way back is the border; the same pace in both directions.
    const double step = std::min(level_ / 2 - deviation, sensitivity.clip - sensitivity.slack);
    accumulated_ = std::max(0.0, accumulated_ + step);
    recovered_ = accumulated_ >= sensitivity.alarm;
    ++run_;
    return;
  }
  accumulated_ =
      std::max(0.0, accumulated_ + std::min(deviation, sensitivity.clip) - sensitivity.slack);
  if (accumulated_ <= 0) {
    run_ = 0;
  } else if (run_++ == 0) {
    since_ = stamp;
  }
  alarmed_ = accumulated_ >= sensitivity.alarm;
  improved_ = std::max(0.0, improved_ + std::min(-deviation, sensitivity.clip) - sensitivity.slack);
  if (improved_ >= sensitivity.alarm) {
    restart();
    return;
  }
  const double noisier = sensitivity.slack / kLeastSlack;
  if (seen_ < std::min(kBaselineSteps * noisier * noisier, kMostBaselineSteps) &&
      accumulated_ < sensitivity.alarm / 2 && std::abs(deviation) < sensitivity.clip) {
    baseline_ = std::min(baseline_ + deviation / ++seen_, usual_ + spread_);
  }
}

double Level::deviation() const {
  return recent(run_ == 0 ? kRing : std::min<std::size_t>(run_, kRing)) - baseline_;
}

bool Level::holds(const Sensitivity& sensitivity) const {
  return alarmed_ && recent() - baseline_ > sensitivity.slack;
}

void Level::blame() { blame(deviation()); }

void Level::blame(double level) {
  blamed_ = true;
  level_ = level;
  alarmed_ = recovered_ = false;
  accumulated_ = 0;
  run_ = 0;
  seen_ = std::max(seen_, learn_steps_);
}

void Level::clear() {
  blamed_ = recovered_ = alarmed_ = false;
  level_ = 0;
  accumulated_ = 0;
  run_ = 0;
}

void Level::dismiss() {
  alarmed_ = false;
  accumulated_ = 0;
  run_ = 0;
}

bool Level::lies_at(double level, const Sensitivity& sensitivity) const {
  return holds(sensitivity) ||
         recent(kFewSteps) - baseline_ > std::max(level / 2, sensitivity.slack);
}

bool Level::moved(const Sensitivity& sensitivity) const {
  const double now = recent() - baseline_;
  return blamed_ && !recovered_ && run_ >= kRing && now > sensitivity.slack &&
         std::abs(now - level_) > std::max(kLeastMove, 2 * sensitivity.slack);
}

}  // namespace tapas::daemon
