// What deviates and holds: who is slow together, who flaps, and whom long batches excuse.
#include "base/median.h"
#include "daemon/core/watch.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tapas::daemon {
namespace {

// When more of the nodes flap than one in so many, the work is uneven.
constexpr std::size_t kFlappingNodes = 8;
// A long batch makes all stages of its replica slow by about the same; by chance it is the same
// replica's for some steps.
constexpr double kAlike = 0.7;
constexpr std::uint32_t kFewBatches = 8;
constexpr std::uint32_t kLongestRunOfBatches = 32;
// A late loader is worth a word when the step takes longer by this share of what it waits.
constexpr double kFeltShare = 0.25;

/// `level` counted from `baseline`, its own or that of a rank that is slow with it.
Deviation above(double baseline, const Level& level) {
  return {std::exp(level.deviation()), std::exp(baseline), std::exp(baseline + level.deviation()),
          level.confidence(),          level.since(),      level.run()};
}
Deviation above(const Level& level) { return above(level.baseline(), level); }

}  // namespace

void Watch::join() {
  std::fill(joined_.begin(), joined_.end(), nullptr);
  for (const std::vector<Team*>& group : groups_) {
    join(group);
  }
}

void Watch::join(const std::vector<Team*>& group) {
  const Sensitivity sensitivity = rank_sensitivity();
  double sum = 0;
  std::size_t slow = 0;
  for (const Team* team : group) {
    for (const RankId rank : team->ranks()) {
      if (ranks_[rank.value()].alarmed()) {
        sum += ranks_[rank.value()].deviation();
        ++slow;
      }
    }
    if (team->slow(ranks_, sensitivity)) {
      sum += team->level().deviation();
      ++slow;
    }
  }
  if (slow == 0) {
    return;
  }
  const double level = sum / static_cast<double>(slow);
  for (const Team* team : group) {
    if (!team->slow(ranks_, sensitivity) && !team->joins(level)) {
      continue;
    }
    for (const RankId rank : team->ranks()) {
      joined_[rank.value()] = team->without(ranks_[rank.value()]) ? nullptr : &team->level();
    }
  }
}

bool Watch::flaps_alone() const {
  std::set<std::pair<std::uint32_t, std::uint32_t>> flapping;
  for (std::uint32_t rank = 0; rank < flaps_.size(); ++rank) {
    if (flaps_[rank].suspect()) {
      flapping.emplace(roles_.of(RankId(rank)).replica, roles_.of(RankId(rank)).stage);
    }
  }
  return flapping.size() <= std::max<std::size_t>(1, roles_.nodes().size() / kFlappingNodes);
}

RankDeviation Watch::flapping(RankId rank) const {
  const Flaps& flaps = flaps_[rank.value()];
  const double before = ranks_[rank.value()].baseline();
  RankDeviation out;
  out.rank = rank;
  out.share = flaps.share();
  out.slowdown = 1 + out.share * (std::exp(flaps.height()) - 1);
  out.before = std::exp(before);
  out.after = std::exp(before + flaps.height());
  out.confidence = flaps.confidence();
  out.since = flaps.since();
  out.steps = flaps.run();
  return out;
}

bool Watch::with_its_replica(RankId rank, const Level& level) const {
  const bool lasts = level.run() > kLongestRunOfBatches;
  if (lasts && ranks_[rank.value()].steady()) {
    return false;
  }
  const Role& role = roles_.of(rank);
  std::vector<double> others;
  for (const RankId other : roles_.by_replica()[role.replica]) {
    const Level& its = ranks_[other.value()];
    if (roles_.of(other).stage == role.stage || its.blamed() || its.learning()) {
      continue;
    }
    if (!lasts) {
      others.push_back(its.recent(level.run()) - its.baseline());
    } else {
      others.push_back(its.run() > kLongestRunOfBatches ? its.deviation() : 0);
    }
  }
  return !others.empty() && lower_median(others) > kAlike * level.deviation();
}

void Watch::find_ranks(Findings& out) {
  const Sensitivity sensitivity = rank_sensitivity();
  const bool alone = flaps_alone();
  std::set<const Level*> uneven;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Level& level = ranks_[rank];
    const Role& role = roles_.of(RankId(rank));
    if (!level.alarmed() && joined_[rank] == nullptr) {
      if (flaps_[rank].alarmed() && role.held && alone) {
        out.ranks.push_back(flapping(RankId(rank)));
      } else if (flaps_[rank].alarmed()) {
        flaps_[rank].reset();
      }
      continue;
    }
    const bool holds = role.held && (level.holds(sensitivity) || joined_[rank] != nullptr);
    if (!holds) {
      level.dismiss();
      continue;
    }
    const Level& risen = level.alarmed() ? level : *joined_[rank];
    if (with_its_replica(RankId(rank), risen)) {
      if (risen.run() < kFewBatches || level.steady()) {
        out.undecided = true;
      } else {
        uneven.insert(&risen);
      }
      continue;
    }
    RankDeviation& found = out.ranks.emplace_back();
    static_cast<Deviation&>(found) = above(level.baseline(), risen);
    found.rank = RankId(rank);
  }
  for (Level& level : ranks_) {
    if (uneven.contains(&level)) {
      level.dismiss();
    }
  }
  for (Team& team : teams_) {
    if (uneven.contains(&team.level()) ||
        (team.level().alarmed() && !team.level().holds(sensitivity))) {
      team.dismiss();
    }
  }
}

void Watch::find_stages(Findings& out) {
  const Sensitivity sensitivity = rank_sensitivity();
  for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
    if (!stages_[stage].holds(sensitivity)) {
      if (stages_[stage].alarmed()) {
        stages_[stage].dismiss();
      }
    } else {
      StageDeviation& found = out.stages.emplace_back();
      static_cast<Deviation&>(found) = above(stages_[stage]);
      found.stage = stage;
    }
  }
}

std::vector<RankId> Watch::late() const {
  std::vector<RankId> out = input_.late(roles_);
  const double felt = wall_.recent() - wall_.baseline();
  std::erase_if(out, [&](RankId rank) {
    const Level& level = input_.level(rank);
    const bool from_the_start = wall_.learning() || level.since().step <= learnt_at_step_;
    return !from_the_start && felt < kFeltShare * level.deviation();
  });
  return out;
}

void Watch::find_late(Findings& out) {
  for (const RankId rank : late()) {
    RankDeviation& found = out.late.emplace_back();
    static_cast<Deviation&>(found) = above(input_.level(rank));
    const double without_s = recent_step_s() / found.after;
    found.before = (found.before - 1) * without_s;
    found.after = (found.after - 1) * without_s;
    found.rank = rank;
  }
}

void Watch::find_rotating(Findings& out) {
  for (Rotating* rotating : {&rotating_replicas_, &rotating_ranks_}) {
    const bool explains = out.job && rotating->may_explain(wall_.deviation());
    if (rotating->holds(rotating_sensitivity()) || explains) {
      out.rotating = out.rotating ? out.rotating : above(rotating->level());
    } else if (rotating->alarmed()) {
      rotating->dismiss();
    }
  }
}

Findings Watch::findings() {
  Findings out;
  out.reporting = reporting_;
  out.expected = roles_.held();
  out.compute_known = compute_known_;
  out.compute_ratio = compute_.learning() ? 1.0 : std::exp(compute_.deviation());
  out.work_ratio = hints_.step_ratio();
  out.input_ratio = input_.step_ratio();
  join();
  find_ranks(out);
  find_stages(out);
  find_late(out);
  if (!explained() && wall_.holds(wall_sensitivity())) {
    if (!out.undecided) {
      out.job = above(wall_);
    }
  } else if (wall_.alarmed()) {
    wall_.dismiss();
  }
  find_rotating(out);
  // What the step took before says nothing about the present.
  std::size_t slow = walls_.size();
  for (const RankDeviation& rank : out.ranks) {
    slow = rank.share < 1 ? slow : std::min<std::size_t>(slow, rank.steps);
  }
  walls_.erase(walls_.begin(), walls_.end() - static_cast<std::ptrdiff_t>(slow));
  return out;
}

}  // namespace tapas::daemon
