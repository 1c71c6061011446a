#include "daemon/core/watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapas::daemon {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint32_t kLearnSteps = 8;
constexpr std::uint32_t kLearnWallSteps = 16;
// Devices of one kind differ by about 3 % (one standard deviation).
constexpr double kMaxOffset = 0.10;
// The cost model's error between stages, where ranks have no equals to be compared with.
constexpr double kMaxModelError = 0.40;
// Healthy devices drift by less than this against each other, and nobody would act on it.
constexpr double kRankSlack = 0.025;
constexpr std::uint32_t kRankSteps = 3;
// Nothing can be moved for a job-wide cause, so its alarm may take longer and be surer.
constexpr double kWallSlack = 0.03;
constexpr std::uint32_t kWallSteps = 10;
// After the first alarm, so that the other devices of a slow node join and levels are sound.
constexpr std::uint32_t kSettleSteps = 2;
constexpr std::size_t kWalls = 5;
// What the slowest of many ranks may lie above its usual time each step without a word: batches are
// never quite even (noise of 11 % a rank gives this much among some tens of ranks).
constexpr double kMostRotating = 0.25;
// Real jobs warm up, some in waves; a step time that rises that early is learnt, not reported.
constexpr std::uint32_t kWarmUpSteps = 128;
constexpr double kMaxSlowdown = 10.0;

/// Lower median: with two halves the faster one is the yardstick. NaN when empty.
double median(std::vector<double>& values) {
  if (values.empty()) {
    return kNone;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double slowdown_of(double log_level) { return std::clamp(std::exp(log_level), 1.0, kMaxSlowdown); }

bool same_work(const Role& a, const Role& b) {
  return a.held == b.held && a.stage == b.stage &&
         std::abs(a.compute_s - b.compute_s) <= 1e-9 * std::abs(b.compute_s);
}

}  // namespace

bool Settle::tick(bool begun) {
  if (age_ == 0) {
    age_ = begun ? 1 : 0;
    return false;
  }
  if (++age_ <= kSettleSteps) {
    return false;
  }
  age_ = 0;
  return true;
}

Watch::Watch(std::uint32_t ranks)
    : ranks_(ranks, Level(kLearnSteps, kMaxOffset)),
      previous_(ranks, kNone),
      wall_(kLearnWallSteps, std::numeric_limits<double>::max()),
      compute_(kLearnWallSteps, std::numeric_limits<double>::max()),
      rotating_(kLearnWallSteps, kMostRotating),
      log_ratio_(ranks, kNone) {}

void Watch::follow(const Roles& roles) {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Role& now = roles.of(RankId(rank));
    const bool was_held = !roles_.all().empty() && roles_.of(RankId(rank)).held;
    if (!was_held || !same_work(roles_.of(RankId(rank)), now)) {
      const bool compared = now.held && roles.nodes_in_stage(now.stage) > 1;
      const double spread = compared ? kMaxOffset : kMaxModelError;
      if (ranks_[rank].blamed()) {
        ranks_[rank].restart();
      } else {
        ranks_[rank] = Level(kLearnSteps, spread);
      }
      previous_[rank] = kNone;
    } else {
      ranks_[rank].dismiss();
    }
  }
  roles_ = roles;
  stages_.assign(roles_.by_stage().size(), Level(kLearnWallSteps, kMaxModelError));
  stage_median_.assign(stages_.size(), kNone);
  wall_ = Level(kLearnWallSteps, std::numeric_limits<double>::max());
  compute_ = wall_;
  rotating_ = Level(kLearnWallSteps, kMostRotating);
  walls_.clear();
  previous_wall_ = 0;
  alarm_.reset();
  recovery_.reset();
  move_.reset();
  due_ = recovery_due_ = move_due_ = false;
}

void Watch::new_session() {
  for (Level& rank : ranks_) {
    rank.restart();
  }
  std::fill(previous_.begin(), previous_.end(), kNone);
  for (Level& stage : stages_) {
    stage.clear();
    stage.restart();
  }
  wall_.clear();
  wall_.restart();
  compute_.restart();
  rotating_.clear();
  rotating_.restart();
  rank_noise_.restart();
  wall_noise_.restart();
  session_steps_ = 0;
  walls_.clear();
  previous_wall_ = 0;
  alarm_.reset();
  recovery_.reset();
  move_.reset();
  due_ = recovery_due_ = move_due_ = false;
}

void Watch::forget(RankId rank) {
  ranks_[rank.value()].clear();
  ranks_[rank.value()].restart();
  previous_[rank.value()] = kNone;
}

Sensitivity Watch::rank_sensitivity() const {
  return Sensitivity::of(rank_noise_.sigma(), kRankSteps, kRankSlack);
}
Sensitivity Watch::wall_sensitivity() const {
  return Sensitivity::of(wall_noise_.sigma(), kWallSteps, kWallSlack);
}

Sensitivity Watch::rotating_sensitivity() const {
  return Sensitivity::of(rank_noise_.sigma(), kWallSteps, kWallSlack);
}

std::optional<JobStep> Watch::observe(const WholeStep& step) {
  due_ = recovery_due_ = move_due_ = false;
  std::vector<double> walls;
  std::vector<double> ends;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (step.ranks[rank].seen && roles_.of(RankId(rank)).held) {
      walls.push_back(step.ranks[rank].wall_s);
      ends.push_back(step.ranks[rank].end_s);
    }
  }
  reporting_ = static_cast<std::uint32_t>(walls.size());
  if (step.flags != 0 || reporting_ * 2 < roles_.held() || walls.empty()) {
    return std::nullopt;
  }
  // Medians: one node's wrong clock moves neither.
  JobStep out{step.step, median(walls), 0, median(ends)};
  out.begin_s = out.end_s - out.wall_s;
  const StepStamp stamp{out.step, out.begin_s};
  observe_compute(step, stamp);
  observe_stages(stamp);
  observe_wall(out.wall_s, stamp);
  settle();
  return out;
}

void Watch::observe_compute(const WholeStep& step, const StepStamp& stamp) {
  std::vector<double> all;
  std::vector<double> group;
  for (std::uint32_t stage = 0; stage < roles_.by_stage().size(); ++stage) {
    group.clear();
    for (const RankId rank : roles_.by_stage()[stage]) {
      const RankStep& entry = step.ranks[rank.value()];
      const double expected = roles_.of(rank).compute_s;
      const bool known = entry.seen && entry.compute_s > 0 && expected > 0;
      log_ratio_[rank.value()] = known ? std::log(entry.compute_s / expected) : kNone;
      if (known) {
        group.push_back(log_ratio_[rank.value()]);
      }
    }
    all.insert(all.end(), group.begin(), group.end());
    stage_median_[stage] = median(group);
  }
  compute_known_ = all.size() * 2 >= roles_.held();
  if (!compute_known_) {
    return;
  }
  job_median_ = median(all);
  compute_.observe(job_median_, wall_sensitivity(), stamp);

  std::vector<double> differences;
  const Sensitivity sensitivity = rank_sensitivity();
  for (std::uint32_t stage = 0; stage < roles_.by_stage().size(); ++stage) {
    const double yardstick = roles_.has_equals(stage) ? stage_median_[stage] : job_median_;
    for (const RankId rank : roles_.by_stage()[stage]) {
      const double value = log_ratio_[rank.value()] - yardstick;
      if (std::isnan(value)) {
        continue;
      }
      double& previous = previous_[rank.value()];
      if (!std::isnan(previous)) {
        differences.push_back(std::abs(value - previous));
      }
      previous = value;
      ranks_[rank.value()].observe(value, sensitivity, stamp);
    }
    if (!roles_.has_equals(stage) && roles_.nodes_in_stage(stage) > 1) {
      expect_of_pair(stage);
    }
  }
  if (!differences.empty()) {
    rank_noise_.add(median(differences));
  }
  observe_rotating(stamp);
}

void Watch::expect_of_pair(std::uint32_t stage) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const RankId rank : roles_.by_stage()[stage]) {
    if (!std::isnan(log_ratio_[rank.value()])) {
      fastest = std::min(fastest, ranks_[rank.value()].recent());
    }
  }
  for (const RankId rank : roles_.by_stage()[stage]) {
    ranks_[rank.value()].expect(fastest);
  }
}

void Watch::observe_stages(const StepStamp& stamp) {
  for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
    // On one node a stage is the node.
    if (roles_.nodes_in_stage(stage) > 1 && compute_known_ && !std::isnan(stage_median_[stage])) {
      stages_[stage].observe(stage_median_[stage] - job_median_, rank_sensitivity(), stamp);
    }
  }
}

void Watch::observe_rotating(const StepStamp& stamp) {
  double furthest = 0;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!std::isnan(previous_[rank]) && !ranks_[rank].learning()) {
      furthest = std::max(furthest, previous_[rank] - ranks_[rank].recent());
    }
  }
  if (furthest > 0) {
    rotating_.observe(furthest, rotating_sensitivity(), stamp);
  }
}

void Watch::observe_wall(double wall_s, const StepStamp& stamp) {
  if (walls_.size() == kWalls) {
    walls_.erase(walls_.begin());
  }
  walls_.push_back(wall_s);
  const double value = std::log(wall_s);
  if (previous_wall_ != 0) {
    wall_noise_.add(std::abs(value - previous_wall_));
  }
  previous_wall_ = value;
  wall_.observe(value, wall_sensitivity(), stamp);
  session_steps_ = std::min(session_steps_ + 1, kWarmUpSteps);
  if (wall_.alarmed() && session_steps_ < kWarmUpSteps) {
    wall_.restart();
  }
}

void Watch::settle() {
  const auto any = [this](auto&& what) { return std::any_of(ranks_.begin(), ranks_.end(), what); };
  const auto alarmed = [](const Level& level) { return level.alarmed(); };
  const Sensitivity sensitivity = rank_sensitivity();
  due_ = alarm_.tick(any(alarmed) || std::any_of(stages_.begin(), stages_.end(), alarmed) ||
                     (wall_.alarmed() && !any_blamed()) || rotating_.alarmed());
  recovery_due_ = recovery_.tick(any([](const Level& level) { return level.recovered(); }));
  move_due_ = move_.tick(any([&](const Level& level) { return level.moved(sensitivity); }));
}

Findings Watch::findings() {
  Findings out;
  out.reporting = reporting_;
  out.expected = roles_.held();
  out.compute_known = compute_known_;
  out.compute_ratio = compute_.learning() ? 1.0 : std::exp(compute_.deviation());
  const Sensitivity sensitivity = rank_sensitivity();
  const auto deviation = [](const Level& level) {
    return Deviation{std::exp(level.deviation()),
                     std::exp(level.baseline()),
                     std::exp(level.baseline() + level.deviation()),
                     level.confidence(),
                     level.since(),
                     level.run()};
  };
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Level& level = ranks_[rank];
    if (!level.alarmed()) {
      continue;
    }
    const Role& role = roles_.of(RankId(rank));
    if (level.holds(sensitivity) && role.held) {
      RankDeviation& found = out.ranks.emplace_back();
      static_cast<Deviation&>(found) = deviation(level);
      found.rank = RankId(rank);
    } else {
      level.dismiss();
    }
  }
  for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
    if (!stages_[stage].holds(sensitivity)) {
      if (stages_[stage].alarmed()) {
        stages_[stage].dismiss();
      }
    } else {
      StageDeviation& found = out.stages.emplace_back();
      static_cast<Deviation&>(found) = deviation(stages_[stage]);
      found.stage = stage;
    }
  }
  if (!any_blamed() && wall_.holds(wall_sensitivity())) {
    out.job = deviation(wall_);
  } else if (wall_.alarmed()) {
    wall_.dismiss();
  }
  if (rotating_.holds(rotating_sensitivity())) {
    out.rotating = deviation(rotating_);
  } else if (rotating_.alarmed()) {
    rotating_.dismiss();
  }
  return out;
}

void Watch::blame(RankId rank, double slowdown) {
  const double level = std::log(slowdown);
  if (ranks_[rank.value()].lies_at(level, rank_sensitivity())) {
    ranks_[rank.value()].blame(level);
  }
}

void Watch::restore(RankId rank, double slowdown) {
  ranks_[rank.value()].blame(std::log(slowdown));
}

void Watch::accept(const std::vector<std::uint32_t>& stages) {
  for (const std::uint32_t stage : stages) {
    stages_[stage].blame();
  }
  if (wall_.alarmed()) {
    wall_.blame();
  }
  for (Level& rank : ranks_) {
    if (rank.alarmed()) {
      rank.restart();
    }
  }
}

std::vector<RankId> Watch::take_recovered() {
  std::vector<RankId> out;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (recovery_due_ && ranks_[rank].recovered()) {
      ranks_[rank].clear();
      out.emplace_back(rank);
    }
  }
  if (!out.empty()) {
    // What the step time was learnt with a culprit says nothing about health.
    wall_.clear();
    wall_.restart();
    compute_.restart();
  }
  return out;
}

bool Watch::take_job_recovered() {
  const bool recovered = wall_.recovered();
  if (recovered) {
    wall_.clear();
  }
  return recovered;
}

std::vector<std::uint32_t> Watch::take_recovered_stages() {
  std::vector<std::uint32_t> out;
  for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage].recovered()) {
      stages_[stage].clear();
      out.push_back(stage);
    }
  }
  return out;
}

bool Watch::take_rotating_recovered() {
  const bool recovered = rotating_.recovered();
  if (recovered) {
    rotating_.clear();
  }
  return recovered;
}

std::vector<RankId> Watch::take_moved() {
  std::vector<RankId> out;
  const Sensitivity sensitivity = rank_sensitivity();
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (move_due_ && ranks_[rank].moved(sensitivity)) {
      ranks_[rank].blame();
      out.emplace_back(rank);
    }
  }
  return out;
}

bool Watch::any_blamed() const {
  for (std::uint32_t rank = 0; rank < roles_.all().size(); ++rank) {
    if (ranks_[rank].blamed() && roles_.of(RankId(rank)).held) {
      return true;
    }
  }
  return false;
}

double Watch::slowdown(RankId rank) const { return slowdown_of(ranks_[rank.value()].level()); }

std::vector<double> Watch::slowdowns() const {
  std::vector<double> out(ranks_.size(), 1.0);
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    out[rank] = slowdown(RankId(rank));
  }
  return out;
}

double Watch::recent_step_s() const {
  std::vector<double> sorted = walls_;
  return sorted.empty() ? 0 : median(sorted);
}

double Watch::learnt_step_s() const { return wall_.learning() ? 0 : std::exp(wall_.baseline()); }

}  // namespace tapas::daemon
