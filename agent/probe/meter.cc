#include "agent/probe/meter.h"

#include "base/median.h"

#include <algorithm>

namespace tapas::agent::probe {

namespace {

constexpr int kWindows = 10;
constexpr std::chrono::milliseconds kResolution{1};

using Seconds = std::chrono::duration<double>;

}  // namespace

void Meter::add(Clock::time_point when, std::uint64_t total) {
  const std::size_t size = samples_.size();
  if (size >= 2 && when - samples_[size - 2].when < kResolution) {
    samples_.back() = {when, total};
  } else {
    samples_.push_back({when, total});
  }
}

double Meter::seconds() const {
  return samples_.empty() ? 0 : Seconds(samples_.back().when - samples_.front().when).count();
}

double Meter::measured_s() const { return seconds() / 2; }

double Meter::bytes_per_s() const {
  if (seconds() <= 0) {
    return 0;
  }
  const auto window = (samples_.back().when - samples_.front().when) / (2 * kWindows);
  std::vector<double> rates;
  for (int i = 0; i < kWindows; ++i) {
    const auto end = samples_.back().when - i * window;
    rates.push_back((total_at(end) - total_at(end - window)) / Seconds(window).count());
  }
  return lower_median(rates);
}

double Meter::total_at(Clock::time_point when) const {
  const auto after = std::lower_bound(
      samples_.begin(), samples_.end(), when,
      [](const Sample& sample, Clock::time_point time) { return sample.when < time; });
  if (after == samples_.begin()) {
    return static_cast<double>(after->total);
  }
  const auto before = after - 1;
  const double part = Seconds(when - before->when) / Seconds(after->when - before->when);
  return static_cast<double>(before->total) +
         part * static_cast<double>(after->total - before->total);
}

}  // namespace tapas::agent::probe
