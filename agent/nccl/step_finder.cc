#include "agent/nccl/step_finder.h"

#include <algorithm>

namespace tapas::nccl {
namespace {

constexpr std::uint64_t kRepetitions = 3;

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29U);
}

}  // namespace

std::uint32_t StepFinder::kind_of(const CollLaunch& launch) {
  for (std::size_t i = 0; i < kKinds; ++i) {
    const std::size_t at = (launch.kind + i) % kKinds;
    Kind& kind = kinds_[at];
    if (kind.count == 0) {
      if (known_kinds_ >= kKinds / 2) {
        return kNone;  // Sizes that differ each time fill any table; the others are still followed.
      }
      ++known_kinds_;
      kind = {launch.kind, launch.bytes, 0, launch.communicator};
    }
    if (kind.hash == launch.kind) {
      return static_cast<std::uint32_t>(at);
    }
  }
  return kNone;
}

std::uint64_t StepFinder::launch(const CollLaunch& launch) {
  const std::uint32_t kind = launch.bytes < kLeastBytes ? kNone : kind_of(launch);
  if (kind == kNone) {
    return 0;
  }
  const std::uint64_t count = ++kinds_[kind].count;
  if (marker_ == 0) {
    search(kind, launch.time_ns);
    return 0;
  }
  if (kind + 1 != marker_ || count % per_step_ != 0) {
    return 0;
  }
  last_step_ = base_step_ + count / per_step_;
  return last_step_;
}

void StepFinder::search(std::uint32_t kind, std::uint64_t time_ns) {
  const std::uint64_t now = launches_++;
  history_[now % kHistory] = static_cast<std::uint16_t>(kind);
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < std::min<std::uint64_t>(kLookback, now + 1); ++i) {
    place = mix(place, history_[(now - i) % kHistory] + 1U);
  }
  places_[now % kHistory] = place;
  Seen& seen = seen_[place % kSeen];
  if (period_ != 0 && places_[(now - period_) % kHistory] == place) {
    ++run_;
  } else {
    const bool again = seen.place == place && now - seen.at <= kHistory / 2;
    period_ = again ? now - seen.at : 0;
    run_ = 0;
    run_since_ns_ = time_ns;
  }
  seen = {place, now};
  if (period_ != 0 && run_ >= kRepetitions * period_ && time_ns - run_since_ns_ >= settle_ns_) {
    choose_marker();
  }
}

void StepFinder::choose_marker() {
  std::uint32_t best = history_[(launches_ - 1) % kHistory];
  for (std::uint64_t i = 1; i <= period_; ++i) {
    const std::uint32_t kind = history_[(launches_ - i) % kHistory];
    if (kinds_[kind].bytes > kinds_[best].bytes) {
      best = kind;
    }
  }
  per_step_ = 0;
  for (std::uint64_t i = 1; i <= period_; ++i) {
    per_step_ += history_[(launches_ - i) % kHistory] == best ? 1 : 0;
  }
  marker_ = best + 1;
}

void StepFinder::forget(std::uint32_t communicator) {
  if (marker_ == 0 || kinds_[marker_ - 1].communicator != communicator) {
    return;
  }
  base_step_ = last_step_;
  std::fill(kinds_.begin(), kinds_.end(), Kind{});
  std::fill(seen_.begin(), seen_.end(), Seen{});
  known_kinds_ = 0;
  launches_ = 0;
  period_ = 0;
  run_ = 0;
  marker_ = 0;
}

}  // namespace tapas::nccl
