#include "daemon/core/level.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// As many series as the standard errors of a Sensitivity are right for: in white noise one of them
// passes those by chance less than once in a million steps.
constexpr double kSeries = 64;
// Jitter is never taken to be smaller, or a quiet job would alarm on nothing.
constexpr double kLeastNoise = 0.01;
// Standard errors of a rise that may become an alarm.
constexpr double kHalfWay = 3.25;
// A rise that needed more steps than this is no run of spikes.
constexpr std::uint32_t kLongRun = 32;
constexpr double kFarBeyond = 2;
// Lone spikes of a rank or a step often reach about this, and come in clusters.
constexpr double kSmall = 0.155;
// Series of a job differ in noise by so much; the common noise counts for the quieter ones.
constexpr double kQuieter = 1.2;
// Values that shape the baseline after the learning steps: few, so that no drift is followed; more
// when noise asks for it.
constexpr double kBaselineSteps = 128;
constexpr double kNoisy = 0.025;
constexpr double kMostBaselineSteps = 1024;
// Standard errors of a rise, and of a single step, up to which the baseline is still refined.
constexpr double kUndisturbed = 3;
constexpr double kOutlier = 3;
// A median knows as much as the mean of fewer values.
constexpr double kMedianKnows = 0.64;
// Of normal values the clamped ones tell 0.68 times how far off the mean is.
constexpr double kHuberGain = 1.47;
// A change of a culprit's level below this is not worth another look (about 16 %).
constexpr double kLeastMove = 0.15;
// How many of the latest values tell where a series lies that has raised no alarm of its own.
constexpr std::size_t kFewSteps = 4;
// Median of |difference of two normal values| = 0.6745 * sqrt(2) * sigma.
constexpr double kSigmaPerDifference = 1.0 / (0.6745 * 1.41421356);
// The mean of it is 2 / sqrt(pi) * sigma.
constexpr double kSigmaPerMeanDifference = 0.886227;
// So much more than usual, noise counts at once, and fades as the usual value catches up.
constexpr double kBurst = 1.5;
constexpr double kBurstFades = 0.9;
constexpr std::uint32_t kNoisePrior = 32;
constexpr std::uint32_t kNoiseSteps = 512;
// A difference of two values tells less about the noise than a value of known mean.
constexpr double kDifferenceKnows = 0.6;
constexpr double kMostDifference = 4;

}  // namespace

Sensitivity Sensitivity::of(double sigma, std::uint32_t steps, double slack) {
  const double noise = std::max(sigma, kLeastNoise);
  Sensitivity out;
  out.noise = noise;
  out.steps = out.small_steps = steps;
  out.slack = slack;
  return out;
}

Sensitivity Sensitivity::among(std::uint32_t series) const {
  Sensitivity out = *this;
  out.evidence = std::sqrt(evidence * evidence + 2 * std::log(series / kSeries));
  return out;
}

void NoiseEstimate::add(double typical_difference) {
  const double sample = typical_difference * kSigmaPerDifference;
  count_ = std::min(count_ + 1, 32U);
  sigma_ += (sample - sigma_) / count_;
  burst_ = std::max(kBurstFades * burst_, sample > kBurst * sigma_ ? sample : 0);
}

void Level::restart() {
  from_start_ = from_start_ && blamed_;
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

/// One of many may be noisier than the others; the common noise counts until enough is known. A
/// series without equals has only its own, which the common one is then.
void Level::learn_noise(double value, double noise) {
  if (!among_equals()) {
    noise_ = noise;
    return;
  }
  if (differences_ == 0) {
    difference_ = noise / kSigmaPerMeanDifference;
    differences_ = kNoisePrior;
  }
  noise_ = std::max(noise, difference_ * kSigmaPerMeanDifference);
  if (ring_size_ > 0) {
    const double before = ring_[(ring_next_ + kRing - 1) % kRing];
    const double difference = std::min(std::abs(value - before), kMostDifference * noise_);
    differences_ = std::min(differences_ + 1, kNoiseSteps);
    difference_ += (difference - difference_) / differences_;
  }
}

void Level::learn() {
  known_ = kMedianKnows * seen_;
  const double learnt = usual_ + known_ / (known_ + prior_steps()) * (recent() - usual_);
  from_start_ = learnt > usual_ + spread_;
  baseline_ = from_start_ ? usual_ : learnt;
  ++times_learnt_;
}

void Level::refine(double deviation) {
  const double noisier = std::max(1.0, noise_ / kNoisy);
  if (seen_ < std::min(kBaselineSteps * noisier * noisier, kMostBaselineSteps) &&
      std::max(confidence(), sure(down_)) < kUndisturbed &&
      std::abs(deviation) < kOutlier * noise_) {
    // Huber's mean without outliers: no spike moves it, and a fault that begins this early little.
    ++seen_;
    ++known_;
    const double step = kHuberGain * std::clamp(deviation, -noise_, noise_);
    const double refined = baseline_ + step / (known_ + prior_steps());
    baseline_ = std::min(refined, std::max(baseline_, usual_ + spread_));
  }
}

void Level::observe(double value, const Sensitivity& sensitivity, const StepStamp& stamp) {
  learn_noise(value, sensitivity.noise);
  ring_[ring_next_] = value;
  ring_next_ = (ring_next_ + 1) % kRing;
  ring_size_ = std::min(ring_size_ + 1, kRing);
  if (learning()) {
    if (++seen_ == learn_steps_) {
      learn();
    }
    return;
  }
  slack_ = sensitivity.slack;
  const double unsure = doubt(sensitivity);
  const double evidence = needed(sensitivity);
  const double unit = unit_of_evidence();
  const double most = clip(sensitivity.steps, sensitivity);
  const auto clipped = [&](double excess) { return std::clamp(excess, -most, most) / unit; };
  const double deviation = value - baseline_;
  if (blamed_) {
    // Half way back is the border; the same pace in both directions.
    up_.add(clipped(level_ / 2 - deviation), 0, unsure, stamp);
    recovered_ = confidence() >= evidence;
    ++blamed_steps_;
    return;
  }
  const double most_small = clip(sensitivity.small_steps, sensitivity);
  const double counted = deviation > kSmall ? deviation : std::min(deviation, slack_ + most_small);
  up_.add(clipped(counted - slack_), (sensitivity.least - slack_) / past_unit(), unsure, stamp);
  // What counted less while more was doubted must not become an alarm of fewer steps.
  alarmed_ = confidence() >= evidence && up_.run() >= sensitivity.steps;
  down_.add(clipped(-deviation - slack_), 0, unsure, stamp);
  if (sure(down_) >= evidence) {
    restart();
    return;
  }
  refine(deviation);
}

bool Level::rising(double errors) const {
  return !alarmed_ && !recovered_ && confidence() > std::max(kHalfWay, errors);
}

double Level::clip(std::uint32_t steps, const Sensitivity& sensitivity) const {
  const double count = steps;
  return needed(sensitivity) * noise_ * std::sqrt((1 + doubt(sensitivity) * count) / (count - 0.1));
}

double Level::error() const { return noise_ / std::sqrt(std::max(1.0, known_ + prior_steps())); }

double Level::doubt(const Sensitivity& sensitivity) const {
  const double off = error() * error() + sensitivity.wander * sensitivity.wander;
  return off / (past_noise() * past_noise());
}

double Level::past_noise() const {
  const double own = std::max(kLeastNoise, difference_ * kSigmaPerMeanDifference);
  return among_equals() ? std::min(noise_, kQuieter * own) : noise_;
}

double Level::needed(const Sensitivity& sensitivity) const {
  if (!among_equals()) {
    return sensitivity.evidence;
  }
  // As sure as so many standard errors would be if the noise were known: Student's t for them.
  const double known = kDifferenceKnows * std::max(differences_, kNoisePrior);
  return std::sqrt(known * std::expm1(sensitivity.evidence * sensitivity.evidence / known));
}

double Level::deviation() const {
  const double latest =
      recent(blamed_ || run() == 0 ? kRing : std::min<std::size_t>(run(), kRing)) - baseline_;
  const double mean = slack_ + past_unit() * up_.mean();
  // Steps are clipped: their mean hides how large a rise is that lies far beyond the noise.
  return !blamed_ && run() > kLongRun && latest < mean + kFarBeyond * noise_ ? mean : latest;
}

bool Level::steady() const {
  const double border = (baseline_ + recent()) / 2;
  return std::all_of(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(ring_size_),
                     [&](double value) { return value > border; });
}

bool Level::holds(const Sensitivity& sensitivity) const {
  const bool above = run() > kLongRun || deviation() > sensitivity.slack;
  return alarmed_ && above && (!from_start_ || deviation() > spread_);
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

void Level::restore(double baseline, double level) {
  baseline_ = baseline;
  known_ = std::max(known_, static_cast<double>(learn_steps_));
  blame(level);
}

void Level::clear() {
  blamed_ = recovered_ = alarmed_ = false;
  level_ = 0;
  up_.reset();
}

void Level::dismiss() {
  alarmed_ = false;
  up_.reset();
  if (from_start_ && !blamed_) {
    restart();
  }
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
