#include "daemon/net/latency.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr std::chrono::seconds kWindow{10};
constexpr double kLeastS = 1e-6;
constexpr double kGrowth = 1.1;

}  // namespace

void RecentTimes::rotate(Clock::time_point now) const {
  if (now - begin_ < kWindow) {
    return;
  }
  before_ = now - begin_ < 2 * kWindow ? std::exchange(current_, {}) : Window{};
  current_ = {};
  begin_ = now;
}

void RecentTimes::add(Clock::duration time, Clock::time_point now) {
  const double time_s = std::chrono::duration<double>(time).count();
  const double step = std::ceil(std::log(std::max(1.0, time_s / kLeastS)) / std::log(kGrowth));
  const auto bucket = std::min(static_cast<std::size_t>(step), kBuckets - 1);
  const std::lock_guard lock(mutex_);
  rotate(now);
  ++current_.counts[bucket];
  current_.max_s = std::max(current_.max_s, time_s);
}

RecentTimes::Summary RecentTimes::summary(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  rotate(now);
  Summary out;
  out.max_s = std::max(before_.max_s, current_.max_s);
  for (std::size_t i = 0; i < kBuckets; ++i) {
    out.count += current_.counts[i] + before_.counts[i];
  }
  const auto quantile = [&](double share) {
    const double wanted = share * static_cast<double>(out.count);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += current_.counts[i] + before_.counts[i];
      if (static_cast<double>(seen) >= wanted) {
        return std::min(out.max_s, kLeastS * std::pow(kGrowth, static_cast<double>(i)));
      }
    }
    return out.max_s;
  };
  if (out.count > 0) {
    out.median_s = quantile(0.5);
    out.p99_s = quantile(0.99);
  }
  return out;
}

}  // namespace tapas::daemon
