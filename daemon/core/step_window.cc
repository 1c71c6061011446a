#include "daemon/core/step_window.h"

#include <algorithm>
#include <utility>

namespace tapas::daemon {

void StepWindow::follow(std::uint32_t expected) {
  expected_ = expected;
  while (!steps_.empty()) {
    recycle(std::move(steps_.extract(steps_.begin()).mapped()));
  }
  if (newest_ != 0) {
    first_ = newest_ + 1;
  }
}

void StepWindow::restart() {
  newest_ = 0;
  first_ = 0;
  follow(expected_);
  live_ = 0;
  std::fill(last_step_.begin(), last_step_.end(), std::nullopt);
  std::fill(ahead_.begin(), ahead_.end(), 0);
  ahead_count_ = 0;
}

void StepWindow::advance_to(std::uint64_t newest) {
  newest_ = newest;
  live_ = 0;
  for (std::uint32_t rank = 0; rank < last_step_.size(); ++rank) {
    live_ += is_live(rank) ? 1 : 0;
  }
}

WholeStep& StepWindow::open(std::uint64_t step) {
  const auto [found, fresh] = steps_.try_emplace(step);
  if (fresh) {
    found->second.step = step;
    if (!spare_.empty()) {
      found->second.ranks = std::move(spare_.back());
      spare_.pop_back();
    }
    found->second.ranks.assign(last_step_.size(), RankStep{});
  }
  return found->second;
}

/// True when half of the live ranks are there too, and the window has followed them.
bool StepWindow::far_ahead(const StepSample& sample) {
  std::uint64_t& mark = ahead_[sample.rank.value()];
  ahead_count_ += mark == 0 ? 1 : 0;
  mark = sample.step;
  if (ahead_count_ * 2 <= std::max(live_, expected_ / 2)) {
    return false;
  }
  // The least of them, so that one rank with a wild number does not pull the window along.
  std::uint64_t target = sample.step;
  for (std::uint64_t& step : ahead_) {
    target = step == 0 ? target : std::min(target, step);
    step = 0;
  }
  ahead_count_ = 0;
  // The window begins where the slowest of them are: steps from before will never be whole, and
  // would leave no room for those that come.
  first_ = target;
  while (!steps_.empty() && steps_.begin()->first < first_) {
    recycle(std::move(steps_.extract(steps_.begin()).mapped()));
  }
  advance_to(target);
  return sample.step < first_ + kSteps;
}

void StepWindow::note(const StepSample& sample) {
  const std::uint32_t rank = sample.rank.value();
  const bool was_live = is_live(rank);
  last_step_[rank] = std::max(last_step_[rank].value_or(0), sample.step);
  if (sample.step > newest_) {
    advance_to(sample.step);
  } else if (!was_live && is_live(rank)) {
    ++live_;
  }
}

StepWindow::Intake StepWindow::add(const StepSample& sample) {
  const std::uint32_t rank = sample.rank.value();
  if (first_ == 0) {
    first_ = sample.step;
  }
  if (sample.step < first_) {
    note(sample);  // From now on its steps are waited for.
    return Intake::kLate;
  }
  if (sample.step >= first_ + kSteps && !far_ahead(sample)) {
    return Intake::kAhead;
  }
  WholeStep& whole = open(sample.step);
  RankStep& entry = whole.ranks[rank];
  if (entry.seen) {
    return Intake::kDuplicate;
  }
  entry.seen = true;
  entry.wall_s = sample.wall_s;
  entry.end_s = sample.end_time_s;
  entry.input_s = sample.input_wait_s;
  if (sample.microbatches > 0) {
    entry.compute_s = (sample.forward_s + sample.backward_s) / sample.microbatches;
    entry.tokens = static_cast<double>(sample.work_tokens) / sample.microbatches;
  }
  whole.flags |= sample.flags;
  ++whole.count;

  note(sample);
  if (std::exchange(ahead_[rank], 0) != 0) {
    --ahead_count_;
  }
  return Intake::kTaken;
}

std::optional<WholeStep> StepWindow::next() {
  const std::uint32_t needed = std::max({live_, (expected_ + 1) / 2, 1U});
  const bool whole = std::any_of(steps_.begin(), steps_.end(),
                                 [&](const auto& entry) { return entry.second.count >= needed; });
  if (!whole) {
    return std::nullopt;
  }
  WholeStep step = std::move(steps_.extract(steps_.begin()).mapped());
  first_ = step.step + 1;
  return step;
}

}  // namespace tapas::daemon
