#include "daemon/core/rotating.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// One that is furthest off in more of the latest steps than this is a culprit, not one of many.
constexpr double kMostOfOne = 0.75;
constexpr double kHalfSure = 3;

/// That the lower median of `size` values exceeds x: more than half of them do.
double chance_of(double x, std::uint32_t size) {
  const double above = std::erfc(x / std::sqrt(2.0)) / 2;
  const std::uint32_t needed = size / 2 + 1;
  double sum = 0;
  for (std::uint32_t k = needed; k <= size; ++k) {
    const double ways =
        std::lgamma(size + 1.0) - std::lgamma(k + 1.0) - std::lgamma(size - k + 1.0);
    sum += std::exp(ways + k * std::log(above) + (size - k) * std::log1p(-above));
  }
  return sum;
}

}  // namespace

double Rotating::by_chance(std::uint32_t size, std::uint32_t groups) {
  double low = 0;
  double high = 8;
  const double wanted = 0.5 / groups;
  while (high - low > 1e-3) {
    const double middle = (low + high) / 2;
    (chance_of(middle, size) > wanted ? low : high) = middle;
  }
  return low;
}

void Rotating::restart() {
  level_.clear();
  level_.restart();
}

void Rotating::observe(double furthest, std::uint32_t who, const Sensitivity& sensitivity,
                       const StepStamp& stamp) {
  who_[next_] = who;
  next_ = (next_ + 1) % kRecent;
  level_.observe(furthest, sensitivity, stamp);
}

bool Rotating::goes_round() const {
  return std::none_of(who_.begin(), who_.end(), [&](std::uint32_t one) {
    return static_cast<double>(std::count(who_.begin(), who_.end(), one)) > kMostOfOne * kRecent;
  });
}

bool Rotating::holds(const Sensitivity& sensitivity) const {
  return level_.holds(sensitivity) && goes_round();
}

bool Rotating::may_explain(double rise) const {
  return level_.confidence() > kHalfSure && level_.deviation() > rise / 2 && goes_round();
}

void Rotating::blame() {
  if (level_.confidence() > kHalfSure) {
    level_.blame();
  }
}

}  // namespace tapas::daemon
