#include "daemon/core/job_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tapas::daemon {
namespace {

constexpr double kHourS = 3600.0;
// A switch that was taken back is remembered for as long.
constexpr double kDayS = 24 * kHourS;
// How long an idea rests that made the job slower; four times as long each time more.
constexpr double kIdeaRestsS = 600.0;

const std::string& owner_of(const SlowLinkRow& row) {
  return row.part == to_string(LinkFault::Part::kReceive) ? row.to : row.from;
}
/// Nothing of it is to be remembered.
bool is_over(const SlowLinkRow& row) { return row.slowdown == 1 && !row.planned; }
bool is_over(const LateLoaderRow& row) { return row.slowdown == 1; }
bool same(const SlowLinkRow& a, const SlowLinkRow& b) {
  return std::tie(a.part, a.slowdown, a.before_s, a.since_s, a.planned) ==
         std::tie(b.part, b.slowdown, b.before_s, b.since_s, b.planned);
}

}  // namespace

void JobLoop::restore_memory(LoopContext& context) {
  healthy_step_s_ = restored_.learnt.healthy_step_s;
  healthy_epoch_ = restored_.learnt.healthy_epoch;
  calibration_ = restored_.learnt.calibration;
  past_switches_.assign(restored_.switches.begin(), restored_.switches.end());
  for (const DeviceRow& row : restored_.devices) {
    memory_.restore(row);
  }
  std::set<std::string> names;
  for (std::uint32_t rank = 0; rank < job_->cluster.device_count(); ++rank) {
    const DeviceRow* row = memory_.find(RankId(rank));
    if (row == nullptr) {
      continue;
    }
    const std::string& node = job_->cluster.nodes[job_->cluster.node_of(RankId(rank)).value()].name;
    if (row->slow) {
      watch_.restore(RankId(rank), row->slowdown);
      Slow& slow = slow_[node];
      slow.since_s = slow.since_s > 0 ? std::min(slow.since_s, row->since_s) : row->since_s;
      slow.level_since_s = slow.since_s;
      slow.planned_at = slow.asked_at = std::max(slow.planned_at, row->planned_at);
      names.insert(node);
    } else if (row->planned_at > 0) {
      recovered_nodes_.insert(node);
    }
  }
  restore_links();
  for (const LateLoaderRow& row : restored_.late_loaders) {
    const auto node = job_->cluster.find(row.node);
    if (node && row.index < job_->cluster.type_of(*node).devices && !is_over(row)) {
      written_late_[job_->cluster.rank_of(*node, row.index)] = row;
    }
  }
  lost_s_ = restored_.loss.lost_s;
  lost_until_s_ = restored_.loss.until_s;
  written_loss_ = restored_.loss;
  if (restored_.trial.open && restored_.trial.epoch == active_->epoch && restored_.before_trial) {
    trial_ = Trial{restored_.trial, restored_.before_trial, {}, 0};
  }
  for (const auto& [node, slow] : slow_) {
    names.insert(node);
    recovered_nodes_.erase(node);
    review_wanted_ = review_wanted_ || slow.planned_at == 0;
  }
  review_wanted_ = review_wanted_ || !recovered_nodes_.empty();
  if (!names.empty()) {
    verdict_ =
        fmt::format("slow since before the daemon was restarted: {}", fmt::join(names, ", "));
    context.out.event(job_->name, "verdict", *names.begin(), verdict_);
  }
}

void JobLoop::know_devices(LoopContext& context, const std::string& node,
                           const JobAttachment& attachment) {
  const bool was_slow = slowdown(node) > 1.0;
  for (const RankAttachment& entry : attachment.ranks) {
    const std::string before = memory_.device(entry.rank);
    if (!memory_.seat(entry.rank, entry.device_uuid)) {
      continue;
    }
    watch_.forget(entry.rank);
    const DeviceRow* row = memory_.find(entry.rank);
    const bool slow = row != nullptr && row->slow;
    if (slow) {
      watch_.restore(entry.rank, row->slowdown);
      slow_.try_emplace(node, Slow{Cause::kDevice, row->since_s, row->since_s, 0, 0, 0});
      review_wanted_ = true;
    }
    context.out.event(
        job_->name, "device_changed", node,
        fmt::format(
            "device {} of {} is another one now ({}, was {}): {}",
            job_->cluster.device_of(entry.rank), node, entry.device_uuid, before,
            slow ? fmt::format("it was {:.2f} times as slow where it was before", row->slowdown)
                 : "nothing is held against it"));
  }
  if (was_slow && slowdown(node) <= 1.0) {
    end_compute_episode(context, node, "has another device in place of the slow one");
    review_wanted_ = true;
  }
  remember(context);
}

void JobLoop::remember(LoopContext& context) {
  for (DeviceRow& row : memory_.take_changes()) {
    context.out.journal(std::move(row));
  }
  remember_links(context);
  remember_late(context);
}

void JobLoop::remember_links(LoopContext& context) {
  std::map<std::pair<std::string, std::string>, SlowLinkRow> now;
  for (auto [ends, row] : written_links_) {
    row.slowdown = 1;
    row.planned = row.planned && recovered_nodes_.contains(owner_of(row));
    now.emplace(ends, std::move(row));
  }
  for (const SlowLink& link : links_.slow_links()) {
    SlowLinkRow row;
    row.job = job_->name;
    row.from = job_->cluster.nodes[link.from.value()].name;
    row.to = job_->cluster.nodes[link.to.value()].name;
    row.part = to_string(link.part);
    row.slowdown = link.slowdown;
    row.before_s = link.before_s;
    row.since_s = link.since_s;
    const auto slow = slow_.find(owner_of(row));
    row.planned = slow != slow_.end() && slow->second.planned_at > 0;
    now[{row.from, row.to}] = std::move(row);
  }
  for (const auto& [ends, row] : now) {
    const auto known = written_links_.find(ends);
    if (known == written_links_.end() || !same(known->second, row)) {
      context.out.journal(row);
    }
  }
  std::erase_if(now, [](const auto& entry) { return is_over(entry.second); });
  written_links_ = std::move(now);
}

void JobLoop::remember_late(LoopContext& context) {
  if (session_ == 0) {
    return;  // What was written counts once it is known that the same processes run.
  }
  std::map<RankId, LateLoaderRow> now;
  for (std::uint32_t r = 0; r < job_->cluster.device_count(); ++r) {
    const RankId rank(r);
    const Level& level = watch_.late_level(rank);
    if (level.blamed()) {
      const NodeId node = job_->cluster.node_of(rank);
      now[rank] = {job_->name,
                   job_->cluster.nodes[node.value()].name,
                   job_->cluster.device_of(rank),
                   session_,
                   std::exp(level.baseline()),
                   std::exp(level.level()),
                   0};
    }
  }
  for (auto& [rank, row] : written_late_) {
    if (!now.contains(rank)) {
      row.slowdown = 1;
      context.out.journal(row);
    }
  }
  for (const auto& [rank, row] : now) {
    if (!written_late_.contains(rank)) {
      context.out.journal(row);
    }
  }
  written_late_ = std::move(now);
}

void JobLoop::restore_late(LoopContext& context) {
  std::set<std::string> nodes;
  for (const auto& [rank, row] : written_late_) {
    if (row.session == session_) {
      watch_.restore_late(rank, row.before, row.slowdown);
      nodes.insert(row.node);
    }
  }
  if (!nodes.empty()) {
    verdict_ = fmt::format("data loaders late since before the daemon was restarted: {}",
                           fmt::join(nodes, ", "));
    context.out.event(job_->name, "verdict", *nodes.begin(), verdict_,
                      {{"cause", std::string(to_string(Cause::kInput))}, {"node", *nodes.begin()}});
  }
  remember_late(context);
}

void JobLoop::restore_links() {
  for (const SlowLinkRow& row : restored_.slow_links) {
    const auto from = job_->cluster.find(row.from);
    const auto to = job_->cluster.find(row.to);
    const auto part = part_of(row.part);
    if (!from || !to || !part || is_over(row)) {
      continue;
    }
    written_links_[{row.from, row.to}] = row;
    written_links_[{row.from, row.to}].wall_ns = 0;
    if (row.slowdown == 1) {
      recovered_nodes_.insert(owner_of(row));
      continue;
    }
    links_.restore({*part, *from, *to, row.before_s, row.slowdown, row.since_s});
    const double planned_at = row.planned ? 1 : 0;
    slow_.try_emplace(owner_of(row),
                      Slow{Cause::kLink, row.since_s, row.since_s, 0, planned_at, planned_at});
  }
}

void JobLoop::plan_changed(LoopContext& context, bool made_for_now) {
  recovered_nodes_.clear();
  for (auto& [node, slow] : slow_) {
    slow.planned_at = made_for_now ? slowdown(node) : 0;
  }
  memory_.planned(made_for_now);
  remember(context);
}

std::vector<StoreRow> JobLoop::decision_rows() const {
  std::vector<StoreRow> rows;
  for (DeviceRow& row : memory_.if_planned(made_for_now())) {
    rows.emplace_back(std::move(row));
  }
  for (auto [ends, row] : written_links_) {
    row.planned = made_for_now() && row.slowdown != 1;
    rows.emplace_back(std::move(row));
  }
  if (next_trial_ && next_trial_->row.may_roll_back) {
    rows.emplace_back(AutomaticSwitchRow{job_->name, switch_.task().to->epoch, job_time_s_,
                                         next_trial_->row.nodes, 0, 0});
  }
  rows.emplace_back(LossRow{job_->name, 0, lost_until_s_, 0});
  return rows;
}

void JobLoop::forget_recovered(LoopContext& context) {
  for (const std::string& node : recovered_nodes_) {
    for (const RankId rank : ranks_of(node)) {
      memory_.forget_plan(rank);
    }
  }
  recovered_nodes_.clear();
  remember(context);
}

const DeviceRow* JobLoop::worst_record(const std::string& node) const {
  const DeviceRow* worst = nullptr;
  for (const RankId rank : ranks_of(node)) {
    const DeviceRow* row = memory_.find(rank);
    if (row != nullptr && (worst == nullptr || row->episodes > worst->episodes)) {
      worst = row;
    }
  }
  return worst;
}

double JobLoop::resting_s(const CoreConfig& config, const std::string& node) const {
  if (slow_.contains(node)) {
    return 0;
  }
  double longest_s = 0;
  for (const RankId rank : ranks_of(node)) {
    const DeviceRow* row = memory_.find(rank);
    if (row != nullptr && !row->slow) {
      const double whole_s = flap_quarantine_s(config, row->episodes);
      // After a restart the job's time is not known before its first step.
      longest_s = std::max(longest_s, std::min(whole_s, row->until_s + whole_s - job_time_s_));
    }
  }
  return longest_s;
}

std::size_t JobLoop::recent_switches(const std::set<std::string>& nodes) const {
  return static_cast<std::size_t>(
      std::count_if(past_switches_.begin(), past_switches_.end(), [&](const auto& past) {
        return past.time_s > job_time_s_ - kHourS &&
               std::any_of(past.nodes.begin(), past.nodes.end(),
                           [&](const std::string& node) { return nodes.contains(node); });
      }));
}

double JobLoop::idea_rests_until_s(const std::set<std::string>& nodes) const {
  double until_s = 0;
  for (const AutomaticSwitchRow& past : past_switches_) {
    if (std::equal(past.nodes.begin(), past.nodes.end(), nodes.begin(), nodes.end())) {
      until_s = std::max(until_s, past.rests_until_s);
    }
  }
  return until_s;
}

void JobLoop::note_switch(LoopContext& context, const std::vector<std::string>& nodes) {
  past_switches_.push_back({job_->name, active_->epoch, job_time_s_, nodes, 0, 0});
  context.out.journal(past_switches_.back());
  while (std::max(past_switches_.front().time_s, past_switches_.front().rests_until_s) <
         job_time_s_ - kDayS) {
    past_switches_.pop_front();
  }
}

double JobLoop::note_failure(LoopContext& context, const std::set<std::string>& nodes) {
  const auto same = [&](const AutomaticSwitchRow& past) {
    return std::equal(past.nodes.begin(), past.nodes.end(), nodes.begin(), nodes.end());
  };
  const auto times =
      std::count_if(past_switches_.begin(), past_switches_.end(),
                    [&](const auto& past) { return same(past) && past.rests_until_s > 0; });
  const double rest_s =
      kIdeaRestsS * std::pow(4.0, static_cast<double>(std::min<std::ptrdiff_t>(times, 4)));
  for (AutomaticSwitchRow& past : past_switches_) {
    if (past.epoch == active_->epoch) {
      past.rests_until_s = job_time_s_ + rest_s;
      context.out.journal(past);
    }
  }
  return rest_s;
}

}  // namespace tapas::daemon
