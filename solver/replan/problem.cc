#include "solver/replan/problem.h"

#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

void add(LayerTimes& to, const LayerTimes& what) {
  to.forward_s += what.forward_s;
  to.backward_s += what.backward_s;
  to.forward_comm_s += what.forward_comm_s;
  to.backward_comm_s += what.backward_comm_s;
}

}  // namespace

Problem::Problem(PlanEvaluator& evaluator, const Plan& current, const ClusterState& state,
                 const std::vector<bool>& pinned)
    : evaluator_(evaluator),
      job_(evaluator.job()),
      current_(current),
      state_(state),
      stages_(current.stages()),
      replicas_(current.replicas()),
      layers_(job_.graph.layer_count()),
      units_of_(job_.cluster.nodes.size()) {
  const Job& job = job_;
  std::map<std::string, std::uint32_t> tors;
  std::map<std::string, std::uint32_t> pods;
  for (std::uint32_t n = 0; n < job.cluster.nodes.size(); ++n) {
    const Node& node = job.cluster.nodes[n];
    tor_.push_back(tors.try_emplace(node.tor, tors.size()).first->second);
    pod_.push_back(pods.try_emplace(node.pod, pods.size()).first->second);
    const NodeType& type = job.cluster.type_of(NodeId(n));
    const NodeLinks links = state.links(NodeId(n));
    const double nics = type.nic_bytes_per_s * type.nics;
    rates_.push_back(
        {nics / links.send, nics / links.receive, type.fast_link_bytes_per_s / links.inside});
  }
  const double owners = job.zero_stage > 0 ? replicas_ : 1;
  optimizer_bytes_ = job.optimizer_bytes_per_param / owners;
  const double whole = job.bytes_per_param + optimizer_bytes_;
  own_share_ = job.zero_stage > 0 ? optimizer_bytes_ / whole : 0;
  layer_bytes_.resize(layers_);
  for (const OpNode& op : job.graph.nodes) {
    layer_bytes_[op.layer] += op.param_bytes / job.bytes_per_param * whole;
  }
  home_stage_.resize(std::size_t{replicas_} * layers_);
  home_.resize(std::size_t{replicas_} * stages_);
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const LayerRange range = stage_layers(current, r, s, layers_);
      home_[r * stages_ + s] = range;
      std::fill(home_stage_.begin() + r * layers_ + range.first,
                home_stage_.begin() + r * layers_ + range.last, s);
    }
  }
  add_units(pinned);
  group_rings();
}

std::uint32_t Problem::shard_of(std::uint32_t node_type, std::uint16_t width) {
  const Sharding sharding{node_type, width, current_.sp_width > 1};
  const auto [it, added] =
      shard_ids_.try_emplace(sharding, static_cast<std::uint32_t>(shards_.size()));
  if (added) {
    Shard shard{&evaluator_.table(sharding),
                memory_rule(job_, node_type, replicas_),
                {},
                {},
                best_ring(job_.cluster, node_type, width, replicas_).bytes_per_s,
                {}};
    shard.before.resize(layers_ + 1);
    shard.params_before.resize(layers_ + 1);
    for (std::uint32_t l = 0; l < layers_; ++l) {
      shard.before[l + 1] = shard.before[l];
      add(shard.before[l + 1], (*shard.table)[l].times);
      shard.params_before[l + 1] = shard.params_before[l] + (*shard.table)[l].params;
    }
    shards_.push_back(std::move(shard));
  }
  return it->second;
}

Unit Problem::make_unit(NodeId node, std::vector<std::uint16_t> devices,
                        const std::vector<std::uint16_t>& now) {
  Unit unit;
  unit.node = node.value();
  unit.drained = state_.is_drained(node);
  const std::uint32_t type = job_.cluster.nodes[node.value()].type;
  const NodeLinks links = state_.links(node);
  const auto slowest = [&](const std::vector<std::uint16_t>& group) {
    double most = 0;
    for (const std::uint16_t device : group) {
      most = std::max(most, state_.slowdown(job_.cluster.rank_of(node, device)));
    }
    return most;
  };
  const auto add_width = [&](std::vector<std::uint16_t> group) {
    Unit::Width option;
    option.shard = shard_of(type, static_cast<std::uint16_t>(group.size()));
    option.slowdown = slowest(group);
    option.position = {node, std::move(group)};
    const double rate = nic_bytes_per_s(job_.cluster.type_of(node), option.position);
    option.send_bytes_per_s = rate / links.send;
    option.receive_bytes_per_s = rate / links.receive;
    unit.widths.push_back(std::move(option));
  };
  add_width(devices);
  if (!job_.capabilities.narrower_groups) {
    return unit;
  }
  std::vector<std::uint16_t> by_speed = devices;
  std::stable_sort(by_speed.begin(), by_speed.end(),
                   [&](std::uint16_t a, std::uint16_t b) { return slowest({a}) < slowest({b}); });
  if (!job_.capabilities.placement) {  // parts of what it has, or all of that and more
    std::stable_partition(by_speed.begin(), by_speed.end(), [&](std::uint16_t device) {
      return std::find(now.begin(), now.end(), device) != now.end();
    });
  }
  for (std::size_t width = devices.size(); width % 2 == 0;) {
    width /= 2;
    std::vector<std::uint16_t> group(by_speed.begin(),
                                     by_speed.begin() + static_cast<std::ptrdiff_t>(width));
    // Idling devices pays only when the ones that stay are faster.
    if (slowest(group) >= unit.widths.front().slowdown) {
      break;
    }
    std::sort(group.begin(), group.end());
    add_width(std::move(group));
  }
  // What runs can go on.
  if (!now.empty() && std::none_of(unit.widths.begin(), unit.widths.end(), [&](const auto& option) {
        return option.position.devices == now;
      })) {
    add_width(now);
  }
  return unit;
}

void Problem::add_units(const std::vector<bool>& pinned) {
  const std::size_t nodes = job_.cluster.nodes.size();
  std::vector<std::vector<bool>> taken(nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    taken[n].resize(job_.cluster.node_types[job_.cluster.nodes[n].type].devices);
  }
  for (const auto& row : current_.placement) {
    for (const Position& position : row) {
      for (const std::uint16_t device : position.devices) {
        taken[position.node.value()][device] = true;
      }
    }
  }
  const auto is_pinned = [&](NodeId node) {
    return node.value() < pinned.size() && pinned[node.value()];
  };
  const auto add = [&](Unit unit) {
    units_of_[unit.node].push_back(static_cast<std::uint32_t>(units_.size()));
    units_.push_back(std::move(unit));
  };
  // Stages of different widths need different groups: those that are free come in the most common.
  std::map<std::size_t, std::uint32_t> widths;
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const Position& position = current_.placement[r][s];
      const std::uint16_t whole = current_.tp_width[current_.splits_of(r)[s]];
      std::vector<std::uint16_t> devices = position.devices;
      auto& used = taken[position.node.value()];
      for (std::uint16_t d = 0; d < used.size() && devices.size() < whole; ++d) {
        if (!used[d]) {
          used[d] = true;
          devices.push_back(d);
        }
      }
      std::sort(devices.begin(), devices.end());
      ++widths[devices.size()];
      const bool stays = is_pinned(position.node);
      Unit unit =
          make_unit(position.node, stays ? position.devices : std::move(devices), position.devices);
      if (stays) {
        unit.pinned = true;
        unit.widths.resize(1);
      }
      unit.home = r * stages_ + s;
      for (Unit::Width& option : unit.widths) {
        option.at_home = option.position.devices == position.devices;
      }
      const Shard& shard = shards_[shard_of(job_.cluster.nodes[unit.node].type,
                                            static_cast<std::uint16_t>(position.devices.size()))];
      const LayerRange home = home_[unit.home];
      home_bytes_.push_back((shard.params_before[home.last] - shard.params_before[home.first]) *
                            shard.rule.state_bytes_per_param);
      for (Unit::Width& option : unit.widths) {
        option.arriving_params = (shards_[option.shard].rule.capacity_bytes - home_bytes_.back()) /
                                 (job_.bytes_per_param + optimizer_bytes_);
      }
      home_unit_.push_back(static_cast<std::uint32_t>(units_.size()));
      add(std::move(unit));
    }
  }
  const std::size_t common =
      std::max_element(widths.begin(), widths.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    if (state_.is_drained(NodeId(n)) || is_pinned(NodeId(n))) {
      continue;
    }
    std::vector<std::uint16_t> devices;
    for (std::uint16_t d = 0; d < taken[n].size(); ++d) {
      if (!taken[n][d]) {
        devices.push_back(d);
        if (devices.size() == common) {
          add(make_unit(NodeId(n), std::exchange(devices, {}), {}));
        }
      }
    }
  }
}

void Problem::group_rings() {
  const auto node = [&](std::uint32_t replica, std::uint32_t stage) {
    return units_[home_unit_[replica * stages_ + stage]].node;
  };
  const auto way = [&](std::uint32_t a, std::uint32_t b) {
    return a == b ? 1.0 : tier(a, b).oversubscription;
  };
  for (std::uint32_t s = 0; s < stages_; ++s) {
    double longest = 1;
    for (std::uint32_t r = 1; r < replicas_; ++r) {
      longest = std::max(longest, way(node(r - 1, s), node(r, s)));
    }
    const auto same = [&](std::uint32_t t) { return way(node(0, t), node(0, s)) <= longest; };
    std::uint32_t first = 0;
    while (first < s && (ring_group_[first] != first || !same(first))) {
      ++first;
    }
    ring_group_.push_back(first);
  }
}

const FabricTier& Problem::tier(std::uint32_t a, std::uint32_t b) const {
  if (tor_[a] == tor_[b]) {
    return job_.cluster.tor;
  }
  return pod_[a] == pod_[b] ? job_.cluster.pod : job_.cluster.core;
}

bool Problem::interchangeable(std::uint32_t a, std::uint32_t b) const {
  const Unit& x = units_[a];
  const Unit& y = units_[b];
  return x.widths.front().position.devices.size() == y.widths.front().position.devices.size() &&
         (x.widths.front().shard == y.widths.front().shard ||
          job_.cluster.device_type_of(NodeId(x.node)).collective_library ==
              job_.cluster.device_type_of(NodeId(y.node)).collective_library);
}

bool Problem::alike(std::uint32_t unit, std::uint32_t replica, std::uint32_t other,
                    std::uint32_t other_replica) const {
  const Unit& a = units_[unit];
  const Unit& b = units_[other];
  const bool same_flags =
      keeps_flags(a) == keeps_flags(b) &&
      (!keeps_flags(a) || replica == other_replica || current_.replica_checkpoint.empty());
  // What the two hold already decides what fits during the switch.
  const auto holds = [&](const Unit& x, std::uint32_t r) {
    return x.home == kNone
               ? std::tuple(kNone, kNone, false)
               : std::tuple(home_[x.home].first, home_[x.home].last, x.home / stages_ == r);
  };
  return same_flags && holds(a, replica) == holds(b, other_replica) &&
         std::equal(a.widths.begin(), a.widths.end(), b.widths.begin(), b.widths.end(),
                    [](const Unit::Width& x, const Unit::Width& y) {
                      return x.shard == y.shard && x.slowdown == y.slowdown;
                    }) &&
         inside(unit) == inside(other);
}

bool Problem::fits_plainly(std::uint32_t shard_index, std::uint32_t held, LayerRange range) {
  Shard& shard = shards_[shard_index];
  if (shard.plain_reach.size() <= held) {
    shard.plain_reach.resize(held + 1);
  }
  std::vector<std::uint32_t>& reach = shard.plain_reach[held];
  if (reach.empty()) {
    reach.resize(layers_);
    std::uint32_t end = 0;
    for (std::uint32_t first = 0; first < layers_; ++first) {
      end = std::max(end, first);
      for (; end < layers_; ++end) {
        const LayerCost sum = shard.table->sum({first, end + 1});
        if (sum.params * shard.rule.state_bytes_per_param + held * sum.stash_bytes +
                sum.work_bytes >
            shard.rule.capacity_bytes) {
          break;
        }
      }
      reach[first] = end;
    }
  }
  return range.last <= reach[range.first];
}

const Problem::Fit& Problem::fit(std::uint32_t unit, std::uint32_t width, std::uint32_t replica,
                                 std::uint32_t held, LayerRange range) {
  const Unit::Width& option = units_[unit].widths[width];
  const bool fixed = keeps_flags(units_[unit]);
  const bool own = fixed && !current_.replica_checkpoint.empty();
  // What is least depends on the pace.
  const std::uint64_t pace = std::bit_cast<std::uint64_t>(option.slowdown) * 0x9E3779B97F4A7C15U +
                             std::bit_cast<std::uint64_t>(inside(unit));
  std::uint64_t key = option.shard;
  for (const std::uint64_t part :
       {std::uint64_t{own ? replica : 0}, std::uint64_t{held}, std::uint64_t{range.first},
        std::uint64_t{range.last}, fixed ? std::uint64_t{0} : pace}) {
    key = (key ^ part) * 0xD6E8FEB86659FD93U;
    key ^= key >> 32U;
  }
  const auto [it, added] = fits_.try_emplace(key);
  Fit& known = it->second;
  if (!added) {
    return known;
  }
  const Shard& shard = shards_[option.shard];
  if (fixed) {
    const std::vector<bool>& flags = current_.checkpoint_of(replica);
    known.fits = stage_memory_bytes(*shard.table, shard.rule, range, held, flags) <=
                 shard.rule.capacity_bytes;
    double flops = 0;
    double again = 0;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      const LayerCost& cost = (*shard.table)[l];
      flops += cost.flops;
      known.forward_s += cost.times.forward_s;
      known.backward_s += cost.times.backward_s;
      known.forward_comm_s += cost.times.forward_comm_s;
      known.backward_comm_s += cost.times.backward_comm_s;
      if (flags[l]) {
        again += cost.forward_flops;
        known.backward_s += cost.times.forward_s;
        known.backward_comm_s += cost.times.forward_comm_s;
      }
    }
    known.fits = known.fits && again <= shard.rule.recompute_ratio * flops;
  } else if (const auto least = fit_stage(*shard.table, shard.rule, range, held,
                                          {option.slowdown, inside(unit)})) {
    known = {true,
             least->forward_s,
             least->backward_s,
             least->forward_comm_s,
             least->backward_comm_s,
             least->recomputed};
  }
  return known;
}

StageTime Problem::stage_time(std::uint32_t unit, std::uint32_t replica, std::uint32_t stage,
                              std::uint32_t microbatches, LayerRange range) {
  const Unit& what = units_[unit];
  const std::uint32_t held = in_flight(current_.schedule, stages_, stage, microbatches);
  const double collectives = inside(unit);
  StageTime best;
  for (std::uint32_t w = 0; w < what.widths.size(); ++w) {
    const Unit::Width& option = what.widths[w];
    const Shard& shard = shards_[option.shard];
    StageTime time;
    time.width = w;
    time.params = shard.params_before[range.last] - shard.params_before[range.first];
    if (!keeps_flags(what) && fits_plainly(option.shard, held, range)) {
      const LayerTimes& a = shard.before[range.first];
      const LayerTimes& b = shard.before[range.last];
      time.fits = true;
      time.forward_s = (b.forward_s - a.forward_s) * option.slowdown +
                       (b.forward_comm_s - a.forward_comm_s) * collectives;
      time.backward_s = (b.backward_s - a.backward_s) * option.slowdown +
                        (b.backward_comm_s - a.backward_comm_s) * collectives;
    } else {
      const Fit& known = fit(unit, w, replica, held, range);
      time.fits = known.fits;
      time.forward_s = known.forward_s * option.slowdown + known.forward_comm_s * collectives;
      time.backward_s = known.backward_s * option.slowdown + known.backward_comm_s * collectives;
    }
    if (time.fits && (!best.fits || time.total_s() < best.total_s()) &&
        fits_switch(unit, replica, w, range)) {
      best = time;
    }
  }
  return best;
}

void Problem::mark(std::uint32_t unit, std::uint32_t replica, std::uint32_t stage,
                   std::uint32_t microbatches, LayerRange range, std::vector<bool>& checkpoint) {
  if (keeps_flags(units_[unit])) {
    const std::vector<bool>& flags = current_.checkpoint_of(replica);
    std::copy(flags.begin() + range.first, flags.begin() + range.last,
              checkpoint.begin() + range.first);
    return;
  }
  const StageTime time = stage_time(unit, replica, stage, microbatches, range);
  const std::uint32_t held = in_flight(current_.schedule, stages_, stage, microbatches);
  const std::uint32_t shard = units_[unit].widths[time.width].shard;
  StageFit none;
  if (!fits_plainly(shard, held, range)) {
    none.recomputed = fit(unit, time.width, replica, held, range).recomputed;
  }
  mark_recomputed(*shards_[shard].table, range, none, checkpoint);
}

Hop Problem::hop(std::uint32_t from, std::uint32_t from_width, std::uint32_t to,
                 std::uint32_t to_width, std::uint32_t layer, bool forward) const {
  const Unit::Width& a = units_[from].widths[from_width];
  const Unit::Width& b = units_[to].widths[to_width];
  const LayerTable& table = *shards_[a.shard].table;
  Sharding sharding = table.sharding();
  sharding.width = std::min(sharding.width, shards_[b.shard].table->sharding().width);
  const Unit::Width& sender = forward ? a : b;
  const Unit::Width& taker = forward ? b : a;
  Link link;
  if (sender.position.node == taker.position.node) {
    link = link_between(job_.cluster, sender.position, taker.position, state_);
  } else {
    const FabricTier& way = tier(units_[from].node, units_[to].node);
    link = {way.latency_s, std::min(sender.send_bytes_per_s, taker.receive_bytes_per_s) /
                               way.oversubscription /
                               state_.path(sender.position.node, taker.position.node)};
  }
  return evaluator_.model().hop(link, sharding, table.cut_bytes(layer), stages_);
}

StepTail Problem::tail(const Ring& ring, std::uint32_t shard) const {
  return evaluator_.model().step_tail(ring, shards_[shard].table->sharding());
}

double Problem::overlapped_s(std::uint32_t unit, const StageTime& time, std::uint32_t replica,
                             std::uint32_t stage, std::uint32_t microbatches, LayerRange range,
                             const StepTail& tail, double end_s) {
  const Unit::Width& option = units_[unit].widths[time.width];
  const LayerTable& table = *shards_[option.shard].table;
  const double collectives = inside(unit);
  flags_.resize(layers_);
  mark(unit, replica, stage, microbatches, range, flags_);
  const auto backward_s = [&](std::uint32_t l) {
    const LayerTimes& t = table[l].times;
    return (t.backward_s + (flags_[l] ? t.forward_s : 0)) * option.slowdown +
           (t.backward_comm_s + (flags_[l] ? t.forward_comm_s : 0)) * collectives;
  };
  double left = 0;  // of the last backward, before the layers behind this one are done
  for (std::uint32_t l = range.first; l < range.last; ++l) {
    left += backward_s(l);
  }
  double done = 0;
  for (std::uint32_t l = range.last; l-- > range.first;) {
    left -= backward_s(l);
    if (table[l].params > 0) {
      done = std::max(done, end_s - left) + tail.sync_s(table[l].params);
    }
  }
  return std::max(done, end_s);
}

bool Problem::fits_switch(std::uint32_t unit, std::uint32_t replica, std::uint32_t width,
                          LayerRange range) const {
  const Unit& what = units_[unit];
  if (what.home == kNone) {
    return true;  // what a stage needs while it runs is more than its state
  }
  const bool own = what.home / stages_ == replica;
  const LayerRange home = home_[what.home];
  const Unit::Width& option = what.widths[width];
  if (shards_[option.shard].params_before[range.last] -
          shards_[option.shard].params_before[range.first] <=
      option.arriving_params) {
    return true;
  }
  if (own && option.at_home && range.first >= home.first && range.last <= home.last) {
    return true;
  }
  const Shard& shard = shards_[option.shard];
  const auto params = [&](LayerRange layers) {
    return layers.first < layers.last
               ? shard.params_before[layers.last] - shard.params_before[layers.first]
               : 0;
  };
  const LayerRange kept = {std::max(range.first, home.first), std::min(range.last, home.last)};
  const double held = option.at_home ? params(kept) : 0;
  const double arriving = params(range) - held;
  const bool shared = job_.zero_stage > 0 && !own;
  return home_bytes_[what.home] + arriving * (job_.bytes_per_param + optimizer_bytes_) +
             (shared ? held * optimizer_bytes_ : 0) <=
         shard.rule.capacity_bytes;
}

double lower_bound_s(const Problem& problem) {
  // Every unit as if each layer ran as on the kind of unit that takes it fastest.
  LayerTimes all;
  bool one_type = true;
  for (const Problem::Shard& shard : problem.shards()) {
    one_type = one_type && shard.table->sharding().node_type ==
                               problem.shards().front().table->sharding().node_type;
  }
  for (std::uint32_t l = 0; l < problem.layers(); ++l) {
    LayerTimes least{kUnknown, kUnknown, kUnknown, kUnknown};
    for (const Problem::Shard& shard : problem.shards()) {
      const LayerTimes& t = (*shard.table)[l].times;
      least.forward_s = std::min(least.forward_s, t.forward_s);
      least.backward_s = std::min(least.backward_s, t.backward_s);
      least.forward_comm_s = std::min(least.forward_comm_s, t.forward_comm_s);
      least.backward_comm_s = std::min(least.backward_comm_s, t.backward_comm_s);
    }
    add(all, least);
  }
  double least_s = kUnknown;  // all layers once, on the fastest unit
  double fastest = kUnknown;
  std::vector<double> speeds;
  for (std::uint32_t u = 0; u < problem.units().size(); ++u) {
    double slowdown = kUnknown;
    for (const Unit::Width& width : problem.unit(u).widths) {
      slowdown = std::min(slowdown, width.slowdown);
    }
    const double whole = (all.forward_s + all.backward_s) * slowdown +
                         (all.forward_comm_s + all.backward_comm_s) * problem.inside(u);
    fastest = std::min({fastest, slowdown, problem.inside(u)});
    least_s = std::min(least_s, whole);
    speeds.push_back(1 / whole);
  }
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  speeds.resize(std::size_t{problem.stages()} * problem.replicas());
  const double speed = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const double total = problem.job().total_microbatches();
  // Each stage of a replica takes at least all layers once and its own (m - 1 - w / 2) times more,
  // w < stages; the mean over its stages, weighted by their speeds, and over the replicas.
  const double waits = 1 + (problem.stages() - 1) / 2.0;
  const double by_speed = least_s + std::max(0.0, total - problem.replicas() * waits) / speed;
  // The search's bound speaks of the nodes that it planned for.
  const double healthy =
      one_type ? problem.current().predicted.lower_bound_s * std::min(1.0, fastest) : 0;
  return std::max({total / speed, by_speed, healthy});
}

}  // namespace tapas::solver
