#include "solver/replan/layout.h"

#include "base/check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kGain = 1e-9;
// A ring counts a little by its mean hop, so that one of several slow ones may go first.
constexpr double kOfMean = 0.1;
// Weight of the smooth worth in the guide: enough to tell layouts apart that take equally long.
// With more it prefers few rows near the longest to a shorter step.
constexpr double kSmooth = 0.03;
// What the guide promises below this is not worth moving anything.
constexpr double kWorthwhile = 1e-6;
// Of a horizon that a switch would eat up.
constexpr double kHopeless = 1e3;

bool less(double a, double b) { return a < b * (1 - kGain); }

double power64(double x) {
  for (int k = 0; k < 6; ++k) {
    x *= x;
  }
  return x;
}

/// Largest mean time of any run of neighbouring stages, links between them included: what one more
/// microbatch takes in the long run.
double period_of(const Pipeline& p) {
  const std::uint32_t stages = p.stages();
  double period = 0;
  for (std::uint32_t a = 0; a < stages; ++a) {
    double sum = 0;
    for (std::uint32_t b = a; b < stages; ++b) {
      sum += p.forward_s[b] + p.backward_s[b];
      period = std::max(period, sum / (b - a + 1));
      if (b + 1 < stages) {
        sum += p.forward_delay_s[b] + p.backward_delay_s[b];
      }
    }
  }
  return period;
}

std::size_t hash_of(const Pipeline& p, std::uint32_t microbatches) {
  std::uint64_t hash = microbatches;
  for (const std::vector<double>* times :
       {&p.forward_s, &p.backward_s, &p.forward_delay_s, &p.backward_delay_s}) {
    for (const double time : *times) {
      hash = (hash ^ std::bit_cast<std::uint64_t>(time)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32U;
    }
  }
  return hash;
}

/// Says once what most replicas have: what all have becomes common, what is common is left out.
template <typename T>
void share(std::vector<std::vector<T>>& own, std::vector<T>& common) {
  if (std::all_of(own.begin(), own.end(), [&](const auto& one) { return one == own.front(); })) {
    common = own.front();
    own.clear();
    return;
  }
  for (std::vector<T>& one : own) {
    if (one == common) {
      one.clear();
    }
  }
}

}  // namespace

bool better(const Worth& a, const Worth& b) {
  if (a.drained != b.drained || !a.possible() || !b.possible()) {
    return a.possible() && (!b.possible() || a.drained < b.drained);
  }
  if (a.useful_s == kForever && b.useful_s == kForever) {
    return less(a.step_s, b.step_s);
  }
  return less(a.useful_s, b.useful_s);
}

bool better_guide(const Worth& a, const Worth& b) {
  if (a.drained != b.drained || !a.possible() || !b.possible()) {
    return a.possible() && (!b.possible() || a.drained < b.drained);
  }
  return a.guide_s < b.guide_s * (1 - kWorthwhile);
}

Layout::Layout(Problem& problem, double episode_s, double pause_s)
    : problem_(problem),
      episode_s_(episode_s),
      pause_s_(pause_s),
      shares_microbatches_(problem.job().capabilities.microbatch_counts && problem.replicas() > 1) {
  const Plan& plan = problem.current();
  const std::uint32_t stages = problem.stages();
  const std::uint32_t replicas = problem.replicas();
  place_of_.assign(problem.units().size(), kNone);
  leaving_.assign(problem.job().cluster.nodes.size(), 0);
  counted_.assign(leaving_.size(), 0);
  out_.assign(leaving_.size(), 0);
  in_.assign(leaving_.size(), 0);
  gives_.assign(place_of_.size(), 0);
  takes_.assign(place_of_.size(), 0);
  members_.resize(stages);
  rings_.resize(stages);
  tails_.resize(stages * problem.shards().size());
  smooth_tails_.resize(tails_.size());
  shift_.assign(replicas, 0);
  saved_at_.assign(replicas, kNone);
  is_stale_.assign(replicas, true);
  is_touched_.assign(leaving_.size(), false);
  pipeline_.schedule = plan.schedule;
  pipeline_.forward_s.resize(stages);
  pipeline_.backward_s.resize(stages);
  pipeline_.forward_delay_s.resize(stages - 1);
  pipeline_.backward_delay_s.resize(stages - 1);
  rows_.resize(replicas);
  for (std::uint32_t r = 0; r < replicas; ++r) {
    Row& row = rows_[r];
    row.cut = plan.splits_of(r);
    row.cut.push_back(problem.layers());
    row.microbatches = plan.microbatches[r];
    row.time.resize(stages);
    row.hop.resize(stages);
    row.end.resize(stages);
    row.done.resize(stages);
    row.smooth.resize(stages);
    for (std::uint32_t s = 0; s < stages; ++s) {
      row.unit.push_back(problem.home_unit(r * stages + s));
      place_of_[row.unit[s]] = r * stages + s;
      touch(problem.unit(row.unit[s]).node);
    }
    stale_.push_back(r);
  }
  double bytes = 0;
  for (std::uint32_t l = 0; l < problem.layers(); ++l) {
    bytes += problem.layer_bytes(l);
  }
  const NodeType& type = problem.job().cluster.type_of(NodeId(problem.unit(0).node));
  one_stage_s_ = bytes / stages / (type.nic_bytes_per_s * type.nics);
  for (const Unit& unit : problem.units()) {
    any_drained_ = any_drained_ || (unit.drained && unit.home != kNone);
  }
  if (const Worth now = exact(); now.possible()) {
    scale_s_ = now.step_s;
    for (Row& row : rows_) {
      row.norm = norm_of(row, 0);  // it was in another scale
    }
  }
  mark();
  std::vector<bool> flags(problem.layers());
  for (std::uint32_t r = 0; r < replicas && !flags_move_; ++r) {
    mark_row(r, flags);
    flags_move_ = flags != plan.checkpoint_of(r);
    for (std::uint32_t s = 0; s < stages; ++s) {
      flags_move_ = flags_move_ || position(r, s) != plan.placement[r][s];
    }
  }
}

Layout::Row& Layout::change(std::uint32_t replica) {
  Row& row = rows_[replica];
  if (saved_at_[replica] == kNone || saved_at_[replica] < point_) {
    if (saved_.size() == saved_count_) {
      saved_.emplace_back();
    }
    SavedRow& save = saved_[saved_count_];
    save.replica = replica;
    save.before = saved_at_[replica];
    save.row = row;
    saved_at_[replica] = static_cast<std::uint32_t>(saved_count_++);
  }
  if (!is_stale_[replica]) {
    is_stale_[replica] = true;
    stale_.push_back(replica);
  }
  return row;
}

void Layout::touch(std::uint32_t node) {
  if (!is_touched_[node]) {
    is_touched_[node] = true;
    touched_.push_back(node);
  }
}

void Layout::forget_touched() {
  for (const std::uint32_t node : touched_) {
    is_touched_[node] = false;
  }
  touched_.clear();
}

void Layout::put(std::uint32_t replica, std::uint32_t stage, std::uint32_t unit) {
  Row& row = change(replica);
  const std::uint32_t place = replica * problem_.stages() + stage;
  const std::uint32_t old = row.unit[stage];
  if (place_of_[old] == place) {
    place_of_[old] = kNone;
  }
  touch(problem_.unit(old).node);
  touch(problem_.unit(unit).node);
  row.unit[stage] = unit;
  row.time[stage] = {};  // widths are the unit's own
  place_of_[unit] = place;
}

void Layout::cut(std::uint32_t replica, std::span<const std::uint32_t> cuts) {
  if (!std::equal(cuts.begin(), cuts.end(), rows_[replica].cut.begin())) {
    Row& row = change(replica);
    row.cut.assign(cuts.begin(), cuts.end());
  }
}

void Layout::count(std::uint32_t replica, std::uint32_t microbatches) {
  if (rows_[replica].microbatches != microbatches) {
    change(replica).microbatches = microbatches;
  }
}

void Layout::mark() {
  TAPAS_CHECK(stale_.empty(), "a layout is marked with {} replicas not timed", stale_.size());
  refresh_rings();  // also where some replica does not fit
  for (std::size_t k = 0; k < saved_count_; ++k) {
    saved_at_[saved_[k].replica] = kNone;
  }
  saved_count_ = point_ = 0;
  saved_rings_.clear();
  saved_leaving_.clear();
}

Layout::Point Layout::point() {
  TAPAS_CHECK(stale_.empty(), "a layout is marked with {} replicas not timed", stale_.size());
  refresh_rings();
  point_ = saved_count_;
  return {saved_count_, saved_rings_.size(), saved_leaving_.size()};
}

void Layout::undo(Point to) {
  for (std::size_t k = to.rows; k < saved_count_; ++k) {
    for (const std::uint32_t unit : rows_[saved_[k].replica].unit) {
      place_of_[unit] = kNone;
    }
  }
  const std::size_t end = saved_count_;
  while (saved_count_ > to.rows) {
    SavedRow& save = saved_[--saved_count_];
    std::swap(rows_[save.replica], save.row);
    saved_at_[save.replica] = save.before;
    is_stale_[save.replica] = false;
  }
  for (std::size_t k = to.rows; k < end; ++k) {
    const std::uint32_t replica = saved_[k].replica;
    for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
      place_of_[rows_[replica].unit[s]] = replica * problem_.stages() + s;
    }
  }
  stale_.clear();
  for (; saved_rings_.size() > to.rings; saved_rings_.pop_back()) {
    set_ring(saved_rings_.back().first, saved_rings_.back().second);
  }
  for (; saved_leaving_.size() > to.nodes; saved_leaving_.pop_back()) {
    leaving_[saved_leaving_.back().first] = saved_leaving_.back().second;
  }
  forget_touched();
  point_ = to.rows;
  finish_rows();
}

void Layout::time_row(std::uint32_t replica) {
  ++evaluations_;
  Row& row = rows_[replica];
  const std::uint32_t stages = problem_.stages();
  row.fits = true;
  row.finished = false;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const StageTime time = problem_.stage_time(row.unit[s], replica, s, row.microbatches,
                                               {row.cut[s], row.cut[s + 1]});
    if (!time.fits) {
      row.fits = false;
      return;
    }
    if (time.width != row.time[s].width) {
      touch(problem_.unit(row.unit[s]).node);
    }
    row.time[s] = time;
    pipeline_.forward_s[s] = time.forward_s;
    pipeline_.backward_s[s] = time.backward_s;
  }
  double busy = 0;
  for (std::uint32_t s = 0; s + 1 < stages; ++s) {
    const auto hop = [&](bool forward) {
      return problem_.hop(row.unit[s], row.time[s].width, row.unit[s + 1], row.time[s + 1].width,
                          row.cut[s + 1], forward);
    };
    const Hop there = hop(true);
    pipeline_.forward_delay_s[s] = there.delay_s;
    pipeline_.backward_delay_s[s] = hop(false).delay_s;
    row.hop[s] = pipeline_.forward_delay_s[s] + pipeline_.backward_delay_s[s];
    busy = std::max(busy, there.busy_s);
  }
  if (busy > 0) {
    for (std::uint32_t s = 0; s < stages; ++s) {
      pipeline_.forward_s[s] += busy;
      pipeline_.backward_s[s] += busy;
    }
  }
  Timed& timed = timed_[hash_of(pipeline_, row.microbatches) % timed_.size()];
  if (row.microbatches != timed.microbatches || pipeline_ != timed.pipeline) {
    timed.pipeline = pipeline_;
    timed.microbatches = row.microbatches;
    const std::span<const double> ends = clock_.ends_s(pipeline_, row.microbatches);
    timed.ends.assign(ends.begin(), ends.end());
    timed.period = period_of(pipeline_);
  }
  row.end = timed.ends;
  row.period = timed.period;
  find_arrivals(replica);
}

void Layout::find_arrivals(std::uint32_t replica) {
  Row& row = rows_[replica];
  const std::uint32_t stages = problem_.stages();
  row.arrivals.clear();
  row.moved = false;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const Unit& unit = problem_.unit(row.unit[s]);
    const Unit::Width& width = unit.widths[row.time[s].width];
    const bool same_group = width.at_home;
    for (std::uint32_t l = row.cut[s]; l < row.cut[s + 1]; ++l) {
      const std::uint32_t home = replica * stages + problem_.home_stage(replica, l);
      if (unit.home == home && same_group) {
        continue;
      }
      row.moved = true;
      const bool has_weights =
          same_group && problem_.home_stage(unit.home / stages, l) == unit.home % stages;
      const double bytes = problem_.layer_bytes(l) * (has_weights ? problem_.own_share() : 1.0);
      const std::uint32_t from = problem_.home_unit(home);
      if (row.arrivals.empty() || row.arrivals.back().from != from ||
          row.arrivals.back().to != row.unit[s]) {
        row.arrivals.push_back(
            {from, row.unit[s], 0, static_cast<double>(width.position.devices.size())});
      }
      row.arrivals.back().bytes += bytes;
    }
  }
}

void Layout::set_ring(std::uint32_t stage, const Ring& ring) {
  for (Row& row : rows_) {
    row.finished = false;
  }
  rings_[stage] = ring;
  Ring smooth = ring;
  smooth.bytes_per_s = 1 / ((1 - kOfMean) / ring.bytes_per_s + kOfMean / ring.mean_bytes_per_s);
  const std::size_t shards = problem_.shards().size();
  for (std::uint32_t k = 0; k < shards; ++k) {
    tails_[stage * shards + k] = problem_.tail(ring, k);
    smooth_tails_[stage * shards + k] = problem_.tail(smooth, k);
  }
}

void Layout::refresh_rings() {
  if (touched_.empty()) {
    return;
  }
  const std::uint32_t stages = problem_.stages();
  std::vector<bool> stale(stages, false);
  for (const std::uint32_t node : touched_) {
    for (const std::uint32_t unit : problem_.units_of(node)) {
      if (place_of_[unit] != kNone) {
        stale[place_of_[unit] % stages] = true;
      }
    }
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    if (stale[s]) {
      std::vector<RingMember>& members = members_[s];
      members.clear();
      for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
        const Unit& unit = problem_.unit(rows_[r].unit[s]);
        const std::size_t width = unit.widths[rows_[r].time[s].width].position.devices.size();
        members.push_back({NodeId(unit.node), 1, static_cast<std::uint32_t>(width)});
      }
      merge_members(members);
    }
  }
  // All stages of a touched node are stale.
  for (std::uint32_t s = 0; s < stages; ++s) {
    if (stale[s] && members_[s].size() > 1) {
      for (const RingMember& member : members_[s]) {
        counted_[member.node.value()] += member.width;
      }
    }
  }
  for (const std::uint32_t node : touched_) {
    if (counted_[node] != leaving_[node]) {
      saved_leaving_.emplace_back(node, leaving_[node]);
      leaving_[node] = counted_[node];
    }
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    if (stale[s]) {
      for (const RingMember& member : members_[s]) {
        counted_[member.node.value()] = 0;
      }
    }
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    if (stale[s]) {
      const Ring ring = ring_over(problem_.job().cluster, members_[s], problem_.replicas(),
                                  leaving_, problem_.state());
      if (ring != rings_[s]) {
        saved_rings_.emplace_back(s, rings_[s]);
        set_ring(s, ring);
      }
    }
  }
  forget_touched();
}

double Layout::norm_of(const Row& row, double later_s) const {
  double sum = 0;
  for (const double done : row.smooth) {
    sum += power64((done + later_s) / scale_s_);
  }
  return std::sqrt(std::sqrt(sum));
}

void Layout::finish_row(std::uint32_t replica) {
  Row& row = rows_[replica];
  const std::size_t shards = problem_.shards().size();
  row.latest = row.longest_update = 0;
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    const std::size_t k = s * shards + problem_.unit(row.unit[s]).widths[row.time[s].width].shard;
    const StepTail& tail = tails_[k];
    row.done[s] = problem_.synchronised_s(row.unit[s], row.time[s], replica, s, row.microbatches,
                                          {row.cut[s], row.cut[s + 1]}, tail, row.end[s]);
    row.latest = std::max(row.latest, row.done[s]);
    row.longest_update = std::max(row.longest_update, tail.update_s(row.time[s].params));
    const StepTail& smooth = smooth_tails_[k];
    row.smooth[s] = problem_.synchronised_s(row.unit[s], row.time[s], replica, s, row.microbatches,
                                            {row.cut[s], row.cut[s + 1]}, smooth, row.end[s]) +
                    smooth.update_s(row.time[s].params);
  }
  row.norm = norm_of(row, 0);
  row.finished = true;
}

bool Layout::fits() const {
  return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.fits; });
}

void Layout::finish_rows() {
  if (fits()) {  // else nothing matters until the rows change again
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      if (!rows_[r].finished) {
        finish_row(r);
      }
    }
  }
}

void Layout::refresh() {
  for (const std::uint32_t r : stale_) {
    time_row(r);
    is_stale_[r] = false;
  }
  stale_.clear();
  if (fits()) {
    refresh_rings();
  }
  finish_rows();
}

double Layout::transfer_s() {
  double slowest = 0;
  const ClusterState& state = problem_.state();
  std::vector<double> on_path(state.paths.size(), 0);
  busy_.clear();
  for (const Row& row : rows_) {
    for (const Arrival& arrival : row.arrivals) {
      const std::uint32_t from = problem_.unit(arrival.from).node;
      const std::uint32_t to = problem_.unit(arrival.to).node;
      busy_.push_back(arrival.from);
      busy_.push_back(arrival.to);
      if (from == to) {
        const std::uint32_t home = problem_.unit(arrival.from).home;
        const Position& old =
            problem_.current().placement[home / problem_.stages()][home % problem_.stages()];
        gives_[arrival.from] += arrival.bytes / static_cast<double>(old.devices.size());
        takes_[arrival.to] += arrival.bytes / arrival.devices;
        continue;
      }
      out_[from] += arrival.bytes;
      in_[to] += arrival.bytes;
      for (std::size_t k = 0; k < state.paths.size(); ++k) {
        if (state.paths[k].from.value() == from && state.paths[k].to.value() == to) {
          on_path[k] += arrival.bytes;
        }
      }
    }
  }
  for (const std::uint32_t unit : busy_) {
    const std::uint32_t node = problem_.unit(unit).node;
    const Problem::NodeRates& rates = problem_.rates(node);
    slowest = std::max(
        {slowest, out_[node] / rates.send_bytes_per_s, in_[node] / rates.receive_bytes_per_s});
    if (const double inside = std::max(gives_[unit], takes_[unit]); inside > 0) {
      slowest = std::max(slowest, inside / rates.inside_bytes_per_s);
    }
    out_[node] = in_[node] = gives_[unit] = takes_[unit] = 0;
  }
  for (std::size_t k = 0; k < state.paths.size(); ++k) {
    const PathSlowdown& path = state.paths[k];
    slowest = std::max(slowest, on_path[k] * path.factor /
                                    std::min(problem_.rates(path.from.value()).send_bytes_per_s,
                                             problem_.rates(path.to.value()).receive_bytes_per_s));
  }
  return slowest;
}

void Layout::spread() {
  std::fill(shift_.begin(), shift_.end(), 0);
  if (!shares_microbatches_) {
    return;
  }
  const auto later = [&](std::uint32_t r, std::int32_t more) {
    return rows_[r].latest + (shift_[r] + more) * rows_[r].period;
  };
  for (;;) {
    std::uint32_t donor = 0;
    std::uint32_t taker = kNone;
    for (std::uint32_t r = 1; r < rows_.size(); ++r) {
      donor = later(r, 0) > later(donor, 0) ? r : donor;
    }
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      if (r != donor && (taker == kNone || later(r, 1) < later(taker, 1))) {
        taker = r;
      }
    }
    if (static_cast<std::int32_t>(rows_[donor].microbatches) + shift_[donor] < 2 ||
        !less(later(taker, 1), later(donor, 0))) {
      return;
    }
    --shift_[donor];
    ++shift_[taker];
  }
}

Worth Layout::worth() {
  Worth worth;
  double latest = 0;
  double update = 0;
  double norm = 0;
  bool moved = flags_move_;
  for (std::uint32_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    if (!row.fits) {
      return worth;
    }
    const double later = shift_[r] * row.period;
    latest = std::max(latest, row.latest + later);
    norm += shift_[r] == 0 ? row.norm : norm_of(row, later);
    update = std::max(update, row.longest_update);
    moved = moved || row.moved || shift_[r] != 0 ||
            row.microbatches != problem_.current().microbatches[r];
    if (any_drained_) {
      for (const std::uint32_t unit : row.unit) {
        worth.drained += problem_.unit(unit).drained ? 1 : 0;
      }
    }
  }
  worth.step_s = latest + update;
  const double transfer = transfer_s();
  const auto charge = [&](double switch_s) {
    const double left = episode_s_ - switch_s;
    return left > 0 ? episode_s_ / left : kForever;
  };
  if (!moved) {
    worth.useful_s = worth.step_s;
  } else if (const double factor = charge(pause_s_ + transfer); factor < kForever) {
    worth.useful_s = worth.step_s * factor;
  }
  const double paid = pause_s_ + std::max(transfer, allowance_ * one_stage_s_);
  const double factor = charge(paid);
  const double smooth_s = std::pow(norm, 1.0 / 16) * scale_s_;
  worth.guide_s = worth.step_s * std::pow(smooth_s / worth.step_s, kSmooth) *
                  (factor < kForever ? factor : kHopeless * (1 + paid));
  return worth;
}

double Layout::least_charge(std::uint32_t replica) const {
  bool pays = flags_move_;
  for (std::uint32_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    pays = pays || row.microbatches != problem_.current().microbatches[r] ||
           (row.moved && r != replica && !problem_.tied());
    for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
      pays = pays || row.unit[s] != problem_.home_unit(r * problem_.stages() + s);
    }
  }
  return pays && episode_s_ > pause_s_ ? episode_s_ / (episode_s_ - pause_s_) : 1;
}

Worth Layout::estimate() {
  refresh();
  spread();
  return worth();
}

Worth Layout::exact() {
  refresh();
  std::fill(shift_.begin(), shift_.end(), 0);
  return worth();
}

Worth Layout::settle() {
  Worth best = exact();
  if (!best.possible() || !shares_microbatches_) {
    return best;
  }
  Point kept = point();
  const auto keep_if_better = [&](const Worth& now) {
    const bool gains = better(now, best);
    if (gains) {
      best = now;
      kept = point();
    }
    return gains;
  };
  for (bool gains = true; gains;) {
    spread();
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      count(r, rows_[r].microbatches + static_cast<std::uint32_t>(shift_[r]));
    }
    gains = keep_if_better(exact());
  }
  undo(kept);
  // Replicas that just start to run steadily take one more in less than a period.
  while (transfer_one()) {
    keep_if_better(worth());
  }
  undo(kept);
  return exact();
}

bool Layout::transfer_one() {
  const std::uint32_t donor = slowest();
  const double latest = rows_[donor].latest;
  const std::uint32_t early = 2 * problem_.stages();
  for (std::uint32_t r = 0; r < rows_.size() && rows_[donor].microbatches > 1; ++r) {
    const bool steady = pipeline_.schedule == Schedule::k1f1b && rows_[r].microbatches >= early;
    if (steady || !less(rows_[r].latest, latest)) {
      continue;
    }
    const Point here = point();
    count(donor, rows_[donor].microbatches - 1);
    count(r, rows_[r].microbatches + 1);
    if (exact().possible() && less(rows_[r].latest, latest)) {
      return true;
    }
    undo(here);
  }
  return false;
}

std::uint32_t Layout::slowest() const {
  std::uint32_t worst = 0;
  for (std::uint32_t r = 1; r < rows_.size(); ++r) {
    worst = rows_[r].latest > rows_[worst].latest ? r : worst;
  }
  return worst;
}

const Position& Layout::position(std::uint32_t replica, std::uint32_t stage) const {
  const Row& row = rows_[replica];
  return problem_.unit(row.unit[stage]).widths[row.time[stage].width].position;
}

void Layout::mark_row(std::uint32_t replica, std::vector<bool>& checkpoint) const {
  const Row& row = rows_[replica];
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    problem_.mark(row.unit[s], replica, s, row.microbatches, {row.cut[s], row.cut[s + 1]},
                  checkpoint);
  }
}

Plan Layout::plan() const {
  Plan plan = problem_.current();
  plan.replica_splits.assign(rows_.size(), {});
  plan.replica_checkpoint.assign(rows_.size(), {});
  for (std::uint32_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    plan.replica_splits[r].assign(row.cut.begin(), row.cut.end() - 1);
    plan.replica_checkpoint[r].assign(problem_.layers(), false);
    plan.microbatches[r] = row.microbatches;
    for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
      plan.placement[r][s] = position(r, s);
    }
    mark_row(r, plan.replica_checkpoint[r]);
  }
  share(plan.replica_splits, plan.pp_splits);
  share(plan.replica_checkpoint, plan.checkpoint);
  return plan;
}

}  // namespace tapas::solver
