#include "daemon/core/rise.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {

void Rise::push(const StepStamp& stamp) {
  // The slopes along the hull grow; a corner that would break that is never the best start again.
  const auto dominated = [this] {
    const Start& last = starts_[size_ - 1];
    const Start& before = starts_[size_ - 2];
    return (last.sum - before.sum) * (count_ - last.count) >=
           (sum_ - last.sum) * (last.count - before.count);
  };
  while (size_ > 1 && dominated()) {
    --size_;
  }
  if (size_ == kStarts) {
    std::move(starts_.begin() + kStarts / 2 + 1, starts_.end(), starts_.begin() + kStarts / 2);
    --size_;
  }
  starts_[size_++] = {sum_, count_, stamp};
}

void Rise::add(double value, double least, double doubt, const StepStamp& stamp) {
  if (size_ == 0) {
    if (value <= 0) {
      return;
    }
    sum_ = 0;
    count_ = 0;
  }
  push(stamp);
  sum_ += value;
  ++count_;
  if (sum_ <= starts_[0].sum) {
    reset();  // Every start so far has seen a mean of zero or less: none beats the next step.
    return;
  }
  find_best(least, doubt);
}

void Rise::find_best(double least, double doubt) {
  double best = 0;
  best_ = 0;
  for (std::size_t start = 0; start < size_; ++start) {
    const double sum = sum_ - starts_[start].sum;
    const double count = count_ - starts_[start].count;
    // Compared as squares; one root at the end.
    const double variance = count + doubt * count * count;
    if (sum > 0 && sum * sum > best * variance && sum >= least * count) {
      best = sum * sum / variance;
      best_ = start;
    }
  }
  evidence_ = std::sqrt(best);
}

std::uint32_t Rise::run() const { return evidence_ == 0 ? 0 : count_ - starts_[best_].count; }

double Rise::mean() const {
  return evidence_ == 0 ? 0 : (sum_ - starts_[best_].sum) / static_cast<double>(run());
}

}  // namespace tapas::daemon
