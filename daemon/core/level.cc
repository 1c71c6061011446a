#include "daemon/core/level.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// Standard errors that a rise must reach. With 16,384 ranks in white noise it is passed by chance
// less than once in a million steps.
constexpr double kEvidence = 6.5;
// Jitter is never taken to be smaller, or a quiet job would alarm on nothing.
constexpr double kLeastNoise = 0.01;
// A rise that needed more steps than this is no run of spikes.
constexpr std::uint32_t kLongRun = 32;
// Values that shape the baseline after the learning steps: few, so that no drift is followed; more
// when noise asks for it.
constexpr double kBaselineSteps = 128;
constexpr double kMostBaselineSteps = 512;
// A change of a culprit's level below this is not worth another look (about 16 %).
constexpr double kLeastMove = 0.15;
// How many of the latest values tell where a series lies that has raised no alarm of its own.
constexpr std::size_t kFewSteps = 4;
// Median of |difference of two normal values| = 0.6745 * sqrt(2) * sigma.
constexpr double kSigmaPerDifference = 1.0 / (0.6745 * 1.41421356);

}  // namespace

Sensitivity Sensitivity::of(double sigma, std::uint32_t steps, double slack) {
  const double noise = std::max(sigma, kLeastNoise);
  return {slack, kEvidence * noise / std::sqrt(static_cast<double>(steps) - 0.1), noise};
}

void NoiseEstimate::add(double typical_difference) {
  const double sample = typical_difference * kSigmaPerDifference;
  count_ = std::min(count_ + 1, 32U);
  sigma_ += (sample - sigma_) / count_;
}

void Level::restart() {
  seen_ = blamed_ ? learn_steps_ : 0;
  ring_size_ = ring_next_ = 0;
  up_.reset();
  down_.reset();
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
  // How badly the baseline is known counts, too: two standard errors of it.
  slack_ = sensitivity.slack + 2 * sensitivity.noise / std::sqrt(static_cast<double>(seen_));
  noise_ = sensitivity.noise;
  const auto clipped = [&](double excess) {
    return std::clamp(excess, -sensitivity.clip, sensitivity.clip);
  };
  const double deviation = value - baseline_;
  if (blamed_) {
    // Half way back is the border; the same pace in both directions.
    up_.add(clipped(level_ / 2 - deviation), stamp);
    recovered_ = confidence() >= kEvidence;
    ++blamed_steps_;
    return;
  }
  up_.add(clipped(deviation - slack_), stamp);
  alarmed_ = confidence() >= kEvidence;
  down_.add(clipped(-deviation - slack_), stamp);
  if (down_.evidence() >= kEvidence * noise_) {
    restart();
    return;
  }
  const double noisier = std::max(1.0, noise_ / slack_);
  if (seen_ < std::min(kBaselineSteps * noisier * noisier, kMostBaselineSteps) &&
      confidence() < kEvidence / 2) {
    // Huber's mean: a spike, or a fault that begins this early, moves it no more than noise does.
    const double step = std::clamp(deviation, -noise_, noise_) / ++seen_;
    baseline_ = std::min(baseline_ + step, usual_ + spread_);
  }
}

double Level::deviation() const {
  if (!blamed_ && run() > kLongRun) {
    return slack_ + up_.mean();
  }
  return recent(blamed_ || run() == 0 ? kRing : std::min<std::size_t>(run(), kRing)) - baseline_;
}

bool Level::holds(const Sensitivity& sensitivity) const {
  return alarmed_ && (run() > kLongRun || recent() - baseline_ > sensitivity.slack);
}

void Level::blame() { blame(deviation()); }

void Level::blame(double level) {
  blamed_ = true;
  level_ = level;
  alarmed_ = recovered_ = false;
  up_.reset();
  blamed_steps_ = 0;
  seen_ = std::max(seen_, learn_steps_);
}

void Level::clear() {
  blamed_ = recovered_ = alarmed_ = false;
  level_ = 0;
  up_.reset();
}

void Level::dismiss() {
  alarmed_ = false;
  up_.reset();
}

bool Level::lies_at(double level, const Sensitivity& sensitivity) const {
  return holds(sensitivity) ||
         recent(kFewSteps) - baseline_ > std::max(level / 2, sensitivity.slack);
}

bool Level::moved(const Sensitivity& sensitivity) const {
  const double now = recent() - baseline_;
  return blamed_ && !recovered_ && blamed_steps_ >= kRing && now > sensitivity.slack &&
         std::abs(now - level_) > std::max(kLeastMove, 2 * sensitivity.slack);
}

}  // namespace tapas::daemon
