#include "daemon/core/watch.h"

#include "base/median.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint32_t kLearnSteps = 8;
constexpr std::uint32_t kLearnWallSteps = 16;
// Devices of one kind differ by about 3 % (one standard deviation).
constexpr double kTypicalOffset = 0.03;
constexpr double kMaxOffset = 0.12;
// Two that are compared with each other lie further apart than one from the middle of many.
constexpr double kTypicalPairOffset = 0.05;
constexpr double kMaxPairOffset = 0.14;
// The cost model's error between stages, where ranks have no equals to be compared with.
constexpr double kTypicalModelError = 0.15;
constexpr double kMaxModelError = 0.40;
// Healthy devices drift by about this against each other, slowly; more where the work is uneven,
// as that shifts medians.
constexpr double kRankWander = 0.0045;
constexpr double kUnevenWander = 0.02;
// Nobody would act on a rise of less.
constexpr double kLeastRankRise = 0.04;
constexpr std::uint32_t kRankSteps = 3;
constexpr std::uint32_t kSmallRankSteps = 4;
// Nothing can be moved for a job-wide cause, so its alarm may take longer and be surer.
constexpr double kWallSlack = 0.03;
constexpr std::uint32_t kWallSteps = 10;
constexpr std::uint32_t kSmallWallSteps = 16;
// After the first alarm, so that the other devices of a slow node join and levels are sound.
constexpr std::uint32_t kSettleSteps = 2;
// Standard errors from which on a rank beside an alarmed one may be about to join it.
constexpr double kUndecided = 3.5;
constexpr std::size_t kWalls = 5;
// What the slowest rank or replica may lie above its usual time each step without a word: batches
// are never quite even. And so many times what independent noise of the ranks gives.
constexpr double kMostRotatingRank = 0.25;
constexpr double kMostRotatingReplica = 0.15;
// The largest of many varies less than each of them.
constexpr double kFurthestNoise = 0.6;
constexpr double kRankBeyondChance = 2.0;
constexpr double kReplicaBeyondChance = 1.5;
// A rank is far off in a step when it is so slow, and by so much more than its noise.
constexpr double kFarOff = 0.155;
constexpr double kFarOffNoise = 3.5;
// Real jobs warm up, some in waves; a step time that rises that early is learnt, not reported.
constexpr std::uint32_t kWarmUpSteps = 128;
constexpr double kMaxSlowdown = 10.0;

Level level_of(const Role& role, const Roles& roles) {
  if (!role.held || roles.nodes_in_stage(role.stage) < 2) {
    return Level(kLearnSteps, kMaxModelError, kTypicalModelError);
  }
  return roles.has_equals(role.stage) ? Level(kLearnSteps, kMaxOffset, kTypicalOffset)
                                      : Level(kLearnSteps, kMaxPairOffset, kTypicalPairOffset);
}

/// Of what concerns the whole step.
Sensitivity step_sensitivity(double sigma) {
  Sensitivity out = Sensitivity::of(sigma, kWallSteps, kWallSlack);
  out.small_steps = kSmallWallSteps;
  return out;
}

double slowdown_of(double log_level) { return std::clamp(std::exp(log_level), 1.0, kMaxSlowdown); }

bool same_work(const Role& a, const Role& b) {
  return a.held == b.held && a.stage == b.stage &&
         std::abs(a.compute_s - b.compute_s) <= 1e-9 * std::abs(b.compute_s);
}

}  // namespace

bool Settle::tick(bool begun, bool clear) {
  if (age_ == 0 && !begun) {
    return false;
  }
  if (++age_ <= kSettleSteps + 1 && !clear) {
    return false;
  }
  age_ = 0;
  return true;
}

Watch::Watch(std::uint32_t ranks)
    : ranks_(ranks, Level(kLearnSteps, kMaxOffset, kTypicalOffset)),
      previous_(ranks, kNone),
      wall_(kLearnWallSteps, std::numeric_limits<double>::max()),
      compute_(kLearnWallSteps, std::numeric_limits<double>::max()),
      flaps_(ranks),
      joined_(ranks, nullptr),
      input_(ranks),
      hints_(ranks),
      log_ratio_(ranks, kNone),
      latest_(ranks, kNone) {}

void Watch::follow(const Roles& roles) {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Role& now = roles.of(RankId(rank));
    const bool was_held = !roles_.all().empty() && roles_.of(RankId(rank)).held;
    if (!was_held || !same_work(roles_.of(RankId(rank)), now)) {
      if (ranks_[rank].blamed()) {
        ranks_[rank].restart();
      } else {
        ranks_[rank] = level_of(now, roles);
        flaps_[rank].reset();
      }
      previous_[rank] = kNone;
    } else {
      ranks_[rank].dismiss();
    }
  }
  roles_ = roles;
  make_teams();
  stages_.assign(roles_.by_stage().size(), Level(kLearnWallSteps, kMaxModelError));
  stage_median_.assign(stages_.size(), kNone);
  wall_ = Level(kLearnWallSteps, std::numeric_limits<double>::max());
  compute_ = wall_;
  rotating_ranks_ = rotating_replicas_ = Rotating();
  input_.restart();
  hints_.restart();
  const double held = std::max(1.0, static_cast<double>(roles_.held()));
  doubt_ = std::max(2.0, std::sqrt(2 * std::log(held)));
  ranks_by_chance_ = Rotating::by_chance(1, std::max(1U, roles_.held()));
  const auto replicas = static_cast<std::uint32_t>(roles_.by_replica().size());
  replicas_by_chance_ =
      replicas == 0 ? 0 : Rotating::by_chance(std::max(1U, roles_.held() / replicas), replicas);
  walls_.clear();
  previous_wall_ = 0;
  alarm_.reset();
  recovery_.reset();
  move_.reset();
  due_ = recovery_due_ = move_due_ = false;
}

void Watch::make_teams() {
  std::fill(joined_.begin(), joined_.end(), nullptr);
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<RankId>> nodes;
  for (std::uint32_t stage = 0; stage < roles_.by_stage().size(); ++stage) {
    for (const RankId rank : roles_.by_stage()[stage]) {
      nodes[{stage, roles_.of(rank).replica}].push_back(rank);
    }
  }
  teams_.clear();
  groups_.clear();
  teams_.reserve(nodes.size());
  for (auto& [where, ranks] : nodes) {
    const bool equals = roles_.has_equals(where.first);
    if (equals && ranks.size() == 1) {
      continue;
    }
    const bool same =
        !equals && !teams_.empty() && roles_.of(teams_.back().ranks().front()).stage == where.first;
    teams_.emplace_back(std::move(ranks));
    if (!same) {
      groups_.emplace_back();
    }
    groups_.back().push_back(&teams_.back());
  }
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
  for (Team& team : teams_) {
    team.restart();
  }
  wall_.clear();
  wall_.restart();
  compute_.restart();
  rotating_ranks_.restart();
  rotating_replicas_.restart();
  input_ = InputWatch(static_cast<std::uint32_t>(ranks_.size()));
  hints_.restart();
  rank_noise_.restart();
  team_noise_.restart();
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
  flaps_[rank.value()].reset();
  input_.forget(rank);
}

bool Watch::uneven() const {
  return rotating_ranks_.level().blamed() || rotating_replicas_.level().blamed();
}

Sensitivity Watch::rank_sensitivity() const {
  Sensitivity out = Sensitivity::of(rank_noise_.at_once(), kRankSteps, 0);
  out.small_steps = kSmallRankSteps;
  out.wander = uneven() ? kUnevenWander : kRankWander;
  out.least = kLeastRankRise;
  return out.among(roles_.held());
}
Sensitivity Watch::wall_sensitivity() const { return step_sensitivity(wall_noise_.sigma()); }

Sensitivity Watch::rotating_sensitivity() const {
  return step_sensitivity(kFurthestNoise * rank_noise_.sigma());
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
  JobStep out{step.step, lower_median(walls), 0, lower_median(ends)};
  out.begin_s = out.end_s - out.wall_s;
  const StepStamp stamp{out.step, out.begin_s};
  observe_compute(step, stamp);
  observe_stages(stamp);
  observe_wall(out.wall_s, stamp);
  input_.observe(step, roles_, out.wall_s, stamp);
  settle();
  return out;
}

void Watch::observe_compute(const WholeStep& step, const StepStamp& stamp) {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankStep& entry = step.ranks[rank];
    const Role& role = roles_.of(RankId(rank));
    const bool known = role.held && entry.seen && entry.compute_s > 0 && role.compute_s > 0;
    log_ratio_[rank] = known ? std::log(entry.compute_s / role.compute_s) : kNone;
  }
  hints_.take_out(step, roles_, log_ratio_, stamp);
  std::vector<double> all;
  std::vector<double> group;
  for (std::uint32_t stage = 0; stage < roles_.by_stage().size(); ++stage) {
    group.clear();
    for (const RankId rank : roles_.by_stage()[stage]) {
      if (!std::isnan(log_ratio_[rank.value()])) {
        group.push_back(log_ratio_[rank.value()]);
      }
    }
    all.insert(all.end(), group.begin(), group.end());
    stage_median_[stage] = lower_median(group);
  }
  compute_known_ = all.size() * 2 >= roles_.held();
  if (!compute_known_) {
    return;
  }
  job_median_ = lower_median(all);
  compute_.observe(job_median_, wall_sensitivity(), stamp);

  std::vector<double> differences;
  const Sensitivity sensitivity = rank_sensitivity();
  for (std::uint32_t stage = 0; stage < roles_.by_stage().size(); ++stage) {
    const double yardstick = roles_.has_equals(stage) ? stage_median_[stage] : job_median_;
    for (const RankId rank : roles_.by_stage()[stage]) {
      const double value = log_ratio_[rank.value()] - yardstick;
      latest_[rank.value()] = value;
      if (std::isnan(value)) {
        continue;
      }
      double& previous = previous_[rank.value()];
      if (!std::isnan(previous)) {
        differences.push_back(std::abs(value - previous));
      }
      previous = value;
      ranks_[rank.value()].observe(value, sensitivity, stamp);
      observe_flaps(rank, value, stamp);
    }
    if (!roles_.has_equals(stage) && roles_.nodes_in_stage(stage) > 1) {
      expect_of_pair(stage);
    }
  }
  if (!differences.empty()) {
    rank_noise_.add(lower_median(differences));
  }
  differences.clear();
  const double noise = team_noise_.at_once();
  for (Team& team : teams_) {
    if (const auto moved = team.observe(latest_, ranks_, sensitivity, noise, stamp)) {
      differences.push_back(*moved);
    }
  }
  if (!differences.empty()) {
    team_noise_.add(lower_median(differences));
  }
  observe_rotating(stamp);
}

void Watch::expect_of_pair(std::uint32_t stage) {
  // The two nodes belong to different replicas; when one holds both, there is no other.
  std::map<std::uint32_t, std::vector<double>> nodes;
  for (const RankId rank : roles_.by_stage()[stage]) {
    if (!std::isnan(log_ratio_[rank.value()])) {
      nodes[roles_.of(rank).replica].push_back(ranks_[rank.value()].recent());
    }
  }
  std::vector<double> paces;
  paces.reserve(nodes.size());
  for (auto& [replica, recent] : nodes) {
    paces.push_back(lower_median(recent));
  }
  if (paces.empty()) {
    return;
  }
  std::sort(paces.begin(), paces.end());
  // Alike, they are each other's yardstick; else the faster one is.
  const bool alike = paces.back() - paces.front() < kMaxOffset;
  const double usual = alike ? (paces.front() + paces.back()) / 2 : paces.front();
  for (const RankId rank : roles_.by_stage()[stage]) {
    ranks_[rank.value()].expect(usual);
  }
}

void Watch::observe_flaps(RankId rank, double value, const StepStamp& stamp) {
  const Level& level = ranks_[rank.value()];
  Flaps& flaps = flaps_[rank.value()];
  if (!level.learning() && (!level.blamed() || flaps.blamed())) {
    const double excess = value - level.baseline();
    const double far = std::max(kFarOff, kFarOffNoise * level.noise()) + doubt_ * level.error();
    flaps.add(excess, excess > far, stamp);
  }
}

void Watch::observe_stages(const StepStamp& stamp) {
  // Each stage counts once: in a pipeline of two, the median of all ranks would be one of them.
  std::vector<double> known;
  std::copy_if(stage_median_.begin(), stage_median_.end(), std::back_inserter(known),
               [](double value) { return !std::isnan(value); });
  const double usual = lower_median(known);
  for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
    // On one node a stage is the node.
    if (roles_.nodes_in_stage(stage) > 1 && compute_known_ && !std::isnan(stage_median_[stage])) {
      stages_[stage].observe(stage_median_[stage] - usual, rank_sensitivity(), stamp);
    }
  }
}

void Watch::observe_rotating(const StepStamp& stamp) {
  struct Furthest {
    double value = 0;
    std::uint32_t who = 0;
    void look(double other, std::uint32_t which) {
      if (other > value) {
        value = other;
        who = which;
      }
    }
  };
  Furthest rank;
  Furthest replica;
  std::vector<double> excess;
  for (std::uint32_t r = 0; r < roles_.by_replica().size(); ++r) {
    excess.clear();
    for (const RankId one : roles_.by_replica()[r]) {
      const double previous = previous_[one.value()];
      if (!std::isnan(previous) && !ranks_[one.value()].learning()) {
        excess.push_back(previous - ranks_[one.value()].recent());
        rank.look(excess.back(), one.value());
      }
    }
    if (excess.size() > 1) {
      replica.look(lower_median(excess), r);
    }
  }
  const Sensitivity sensitivity = rotating_sensitivity();
  const double noise = rank_noise_.sigma();
  if (rank.value > 0) {
    rotating_ranks_.allow(
        std::max(kMostRotatingRank, kRankBeyondChance * noise * ranks_by_chance_));
    rotating_ranks_.observe(rank.value, rank.who, sensitivity, stamp);
  }
  if (replica.value > 0) {
    rotating_replicas_.allow(
        std::max(kMostRotatingReplica, kReplicaBeyondChance * noise * replicas_by_chance_));
    rotating_replicas_.observe(replica.value, replica.who, sensitivity, stamp);
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
  const bool was_learning = wall_.learning();
  wall_.observe(value, wall_sensitivity(), stamp);
  if (was_learning && !wall_.learning()) {
    learnt_at_step_ = stamp.step;
  }
  session_steps_ = std::min(session_steps_ + 1, kWarmUpSteps);
  if (wall_.alarmed() && session_steps_ < kWarmUpSteps) {
    wall_.restart();
  }
}

void Watch::settle() {
  const auto any = [this](auto&& what) { return std::any_of(ranks_.begin(), ranks_.end(), what); };
  const auto alarmed = [](const Level& level) { return level.alarmed(); };
  const Sensitivity sensitivity = rank_sensitivity();
  const bool flapping =
      std::any_of(flaps_.begin(), flaps_.end(), [](const Flaps& flaps) { return flaps.alarmed(); });
  const bool begun = any(alarmed) || flapping ||
                     std::any_of(teams_.begin(), teams_.end(),
                                 [](const Team& team) { return team.level().alarmed(); }) ||
                     std::any_of(stages_.begin(), stages_.end(), alarmed) ||
                     (wall_.alarmed() && !explained()) || rotating_ranks_.alarmed() ||
                     rotating_replicas_.alarmed() || !late().empty();
  due_ = alarm_.tick(begun, begun && clear_cut());
  bool recovered = false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    recovered = recovered || back(RankId(static_cast<std::uint32_t>(rank)));
  }
  recovery_due_ = recovery_.tick(recovered);
  move_due_ = move_.tick(any([&](const Level& level) { return level.moved(sensitivity); }));
}

bool Watch::back(RankId rank) const {
  const Flaps& flaps = flaps_[rank.value()];
  return ranks_[rank.value()].recovered() && (!flaps.blamed() || flaps.calm());
}

bool Watch::clear_cut() const {
  bool any =
      std::any_of(ranks_.begin(), ranks_.end(), [](const Level& level) { return level.alarmed(); });
  for (const std::vector<Team*>& group : groups_) {
    // Whoever may yet join an alarm of the group is waited for.
    bool alarmed = false;
    bool undecided = false;
    for (const Team* team : group) {
      alarmed = alarmed || team->level().alarmed();
      for (const RankId rank : team->ranks()) {
        const Level& level = ranks_[rank.value()];
        alarmed = alarmed || level.alarmed();
        const bool open = !level.alarmed() && !level.blamed() && !team->level().alarmed();
        undecided = undecided || (open && (team->undecided() || level.confidence() > kUndecided));
      }
    }
    if (alarmed && undecided) {
      return false;
    }
    any = any || alarmed;
  }
  return any;
}

void Watch::blame(RankId rank, double slowdown) {
  const double level = std::log(slowdown);
  Flaps& flaps = flaps_[rank.value()];
  if (joined_[rank.value()] != nullptr || ranks_[rank.value()].lies_at(level, rank_sensitivity())) {
    ranks_[rank.value()].blame(level);
    flaps.reset();
  } else if (flaps.alarmed()) {
    ranks_[rank.value()].blame(level);
    flaps.blame();
  }
}

void Watch::restore(RankId rank, double slowdown) {
  ranks_[rank.value()].blame(std::log(slowdown));
}

void Watch::restore_late(RankId rank, double before, double slowdown) {
  input_.restore(rank, std::log(before), std::log(slowdown));
}

void Watch::accept_rotating() {
  rotating_ranks_.blame();
  rotating_replicas_.blame();
}

void Watch::accept(const std::vector<std::uint32_t>& stages) {
  for (const std::uint32_t stage : stages) {
    stages_[stage].blame();
  }
  if (wall_.alarmed()) {
    wall_.blame();
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].alarmed() || joined_[rank] != nullptr) {
      ranks_[rank].restart();
      flaps_[rank].reset();
    }
  }
}

std::vector<RankId> Watch::take_recovered() {
  std::vector<RankId> out;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (recovery_due_ && back(RankId(rank))) {
      ranks_[rank].clear();
      flaps_[rank].reset();
      out.emplace_back(rank);
    }
  }
  if (!out.empty()) {
    learn_step_anew();
  }
  return out;
}

void Watch::learn_step_anew() {
  wall_.clear();
  wall_.restart();
  compute_.restart();
}

std::vector<RankId> Watch::take_input_recovered() {
  std::vector<RankId> out = input_.take_recovered(roles_);
  if (!out.empty() && !any_late()) {
    learn_step_anew();
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
  bool recovered = false;
  for (Rotating* rotating : {&rotating_replicas_, &rotating_ranks_}) {
    if (rotating->level().recovered()) {
      rotating->clear();
      recovered = true;
    }
  }
  return recovered;
}

std::vector<RankId> Watch::take_moved() {
  std::vector<RankId> out;
  const Sensitivity sensitivity = rank_sensitivity();
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (move_due_ && ranks_[rank].moved(sensitivity)) {
      ranks_[rank].blame();
      flaps_[rank].reset();
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

bool Watch::rising() const {
  for (std::uint32_t rank = 0; rank < roles_.all().size(); ++rank) {
    // The furthest of many is that far by chance.
    if (ranks_[rank].rising(doubt_) && roles_.of(RankId(rank)).held) {
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
  return sorted.empty() ? 0 : lower_median(sorted);
}

double Watch::learnt_step_s() const { return wall_.learning() ? 0 : std::exp(wall_.baseline()); }

}  // namespace tapas::daemon
