#include "daemon/core/input_watch.h"

#include "base/median.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tapas::daemon {
namespace {

constexpr std::uint32_t kLearnRankSteps = 8;
// Loaders differ by little; who lies further above the others from the start is late.
constexpr double kTypicalOffset = 0.03;
constexpr double kMaxOffset = 0.10;
// Loaders stall for some steps after a checkpoint; nothing can be moved, so it may take longer.
constexpr std::uint32_t kSteps = 8;
constexpr double kSlack = 0.03;
constexpr double kLeastRise = 0.05;
// However long a rank waits, something of the step is left.
constexpr double kMostOfStep = 0.95;

/// What a rank of the stage waits when nothing is wrong with its own loader: the median of the
/// nodes, each by its longest wait, as often one rank of a node loads for all; on a single node the
/// median of its ranks.
double usual_wait_s(const WholeStep& step, const Roles& roles, std::uint32_t stage) {
  std::vector<double> nodes;
  std::vector<double> ranks;
  std::uint32_t replica = 0;
  for (const RankId rank : roles.by_stage()[stage]) {
    const RankStep& entry = step.ranks[rank.value()];
    if (!entry.seen) {
      continue;
    }
    ranks.push_back(entry.input_s);
    if (nodes.empty() || roles.of(rank).replica != replica) {
      nodes.push_back(0);
      replica = roles.of(rank).replica;
    }
    nodes.back() = std::max(nodes.back(), entry.input_s);
  }
  std::vector<double>& groups = roles.nodes_in_stage(stage) > 1 ? nodes : ranks;
  return groups.empty() ? 0 : lower_median(groups);
}

}  // namespace

Level InputWatch::rank_level() { return {kLearnRankSteps, kMaxOffset, kTypicalOffset}; }

Sensitivity InputWatch::sensitivity() const {
  Sensitivity out = Sensitivity::of(noise_.sigma(), kSteps, kSlack);
  out.least = kLeastRise;
  return out.among(watched_);
}

void InputWatch::restart() {
  for (Level& level : late_) {
    level.restart();
  }
  longest_.restart();
  noise_.restart();
  longest_noise_.restart();
  previous_.clear();
  previous_longest_ = 0;
  unwaited_ = 0;
}

void InputWatch::forget(RankId rank) {
  late_[rank.value()].clear();
  late_[rank.value()].restart();
}

void InputWatch::observe(const WholeStep& step, const Roles& roles, double wall_s,
                         const StepStamp& stamp) {
  double longest_s = 0;
  for (const RankStep& rank : step.ranks) {
    longest_s = rank.seen ? std::max(longest_s, rank.input_s) : longest_s;
  }
  if (previous_.empty() && longest_s == 0 && !any_blamed()) {
    unwaited_ = std::min(unwaited_ + 1, kLearnSteps);
    return;
  }
  watched_ = roles.held();
  const bool first = previous_.empty();
  if (first) {
    previous_.resize(late_.size());
    for (std::uint32_t earlier = 0; earlier < unwaited_; ++earlier) {
      longest_.observe(0, Sensitivity::of(0, kSteps, kSlack), stamp);
      for (Level& level : late_) {
        level.observe(0, sensitivity(), stamp);
      }
    }
  }
  longest_s = std::min(longest_s, kMostOfStep * wall_s);
  const double rest_s = wall_s - longest_s;
  const double longest = std::log(wall_s / rest_s);
  if (!first) {
    longest_noise_.add(std::abs(longest - previous_longest_));
  }
  previous_longest_ = longest;
  longest_.observe(longest, Sensitivity::of(longest_noise_.sigma(), kSteps, kSlack), stamp);

  std::vector<double> differences;
  const Sensitivity sensitive = sensitivity();
  for (std::uint32_t stage = 0; stage < roles.by_stage().size(); ++stage) {
    const double usual_s = usual_wait_s(step, roles, stage);
    for (const RankId rank : roles.by_stage()[stage]) {
      const RankStep& entry = step.ranks[rank.value()];
      if (!entry.seen) {
        continue;
      }
      const double extra_s = std::min(entry.input_s, longest_s) - usual_s;
      const double value = std::log1p(std::max(0.0, extra_s) / rest_s);
      if (!first) {
        differences.push_back(std::abs(value - previous_[rank.value()]));
      }
      previous_[rank.value()] = value;
      late_[rank.value()].observe(value, sensitive, stamp);
    }
  }
  if (!differences.empty()) {
    noise_.add(lower_median(differences));
  }
}

std::vector<RankId> InputWatch::late(const Roles& roles) const {
  std::vector<RankId> out;
  if (previous_.empty()) {
    return out;
  }
  const Sensitivity sensitive = sensitivity();
  for (std::uint32_t stage = 0; stage < roles.by_stage().size(); ++stage) {
    std::set<std::uint32_t> nodes;
    std::vector<RankId> found;
    for (const RankId rank : roles.by_stage()[stage]) {
      const Level& level = late_[rank.value()];
      if (level.holds(sensitive)) {
        found.push_back(rank);
      }
      if (level.holds(sensitive) || level.blamed()) {
        nodes.insert(roles.of(rank).replica);
      }
    }
    const std::uint32_t all = roles.nodes_in_stage(stage);
    if (all == 1 || nodes.size() * 2 <= all) {
      out.insert(out.end(), found.begin(), found.end());
    }
  }
  return out;
}

bool InputWatch::any_blamed() const {
  return std::any_of(late_.begin(), late_.end(), [](const Level& level) { return level.blamed(); });
}

std::vector<RankId> InputWatch::take_recovered(const Roles& roles) {
  std::vector<RankId> out;
  for (std::uint32_t rank = 0; rank < late_.size(); ++rank) {
    const Level& level = late_[rank];
    if (level.recovered() || (level.blamed() && !roles.of(RankId(rank)).held)) {
      late_[rank].clear();
      out.emplace_back(rank);
    }
  }
  return out;
}

double InputWatch::step_ratio() const {
  return longest_.learning() ? 1.0 : std::exp(longest_.deviation());
}

}  // namespace tapas::daemon
