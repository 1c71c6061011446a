#include "daemon/core/work_hints.h"

#include "base/median.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapas::daemon {
namespace {

// Of what was learnt this is left after a step: some hundred steps count.
constexpr double kKept = 0.996;
// Hints have to vary by more than noise before they count.
constexpr double kDoubt = 8 * 0.01 * 0.01;
constexpr double kMostPower = 2;
// A rank that gets slow or well again changes once by more than batches do.
constexpr double kMostChange = 1;
constexpr std::uint32_t kClear = 10;
constexpr double kSlack = 0.03;

}  // namespace

void WorkHints::restart() {
  std::fill(before_.begin(), before_.end(), Before{});
  known_ = false;
  together_ = alone_ = 0;
  largest_.restart();
  noise_.restart();
}

double WorkHints::power() const {
  return std::clamp(together_ / (alone_ + kDoubt), 0.0, kMostPower);
}

double WorkHints::step_ratio() const {
  return largest_.learning() ? 1.0 : std::exp(largest_.deviation());
}

/// Least squares of how compute changes on how tokens change, both against the others: neither what
/// devices differ by nor what all do alike disturbs it.
void WorkHints::learn(const std::vector<double>& log_compute) {
  std::vector<double> compute;
  std::vector<double> tokens;
  for (std::size_t rank = 0; rank < before_.size(); ++rank) {
    const double change = log_compute[rank] - before_[rank].compute;
    if (!std::isnan(change)) {
      compute.push_back(change);
      tokens.push_back(tokens_[rank] - before_[rank].tokens);
    }
    before_[rank] = {tokens_[rank], log_compute[rank]};
  }
  if (compute.empty()) {
    return;
  }
  const double usual_compute = median(compute);
  const double usual_tokens = median(tokens);
  together_ *= kKept;
  alone_ *= kKept;
  for (std::size_t i = 0; i < compute.size(); ++i) {
    const double more = tokens[i] - usual_tokens;
    together_ += more * std::clamp(compute[i] - usual_compute, -kMostChange, kMostChange);
    alone_ += more * more;
  }
}

void WorkHints::take_out(const WholeStep& step, const Roles& roles,
                         std::vector<double>& log_compute, const StepStamp& stamp) {
  double most = 0;
  std::vector<double> all;
  for (std::uint32_t rank = 0; rank < log_compute.size(); ++rank) {
    if (std::isnan(log_compute[rank]) || !roles.of(RankId(rank)).held) {
      continue;
    }
    const double tokens = step.ranks[rank].tokens;
    if (tokens <= 0) {
      return;
    }
    tokens_[rank] = std::log(tokens);
    most = std::max(most, tokens);
    all.push_back(tokens_[rank]);
  }
  if (all.empty()) {
    return;
  }
  if (!known_) {
    known_ = true;
    usual_ = median(std::move(all));
  }
  learn(log_compute);
  const double largest = power() * (std::log(most) - usual_);
  noise_.add(std::abs(largest - previous_));
  previous_ = largest;
  largest_.observe(largest, Sensitivity::of(noise_.sigma(), kClear, kSlack), stamp);
  for (std::size_t rank = 0; rank < log_compute.size(); ++rank) {
    log_compute[rank] -= power() * (tokens_[rank] - usual_);
  }
}

}  // namespace tapas::daemon
