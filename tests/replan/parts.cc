#include "tests/replan/parts.h"

#include "base/check.h"
#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace tapas::solver::testing {
namespace {

// Beyond this the table of links between all pairs would be larger than what it saves.
constexpr std::size_t kTabledUnits = 512;
constexpr double kRounding = 1e-9;

}  // namespace

Parts::Parts(const Job& job, const ReplanRequest& request)
    : job_(job),
      request_(request),
      evaluator_(job),
      replicas_(request.current.replicas()),
      stages_(request.current.stages()),
      layers_(job.graph.layer_count()),
      width_(static_cast<std::uint16_t>(request.current.placement[0][0].devices.size())) {
  const Plan& current = request.current;
  std::map<NodeId, std::uint32_t> home;
  std::map<NodeId, std::vector<std::uint16_t>> devices;  // in the order of the plan
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const Position& at = current.placement[r][s];
      TAPAS_CHECK(at.devices.size() == job.cluster.type_of(at.node).devices &&
                      home.try_emplace(at.node, r * stages_ + s).second,
                  "a position that is not a whole node");
      devices[at.node] = at.devices;
    }
  }
  at_.resize(std::size_t{replicas_} * stages_);
  for (std::uint32_t n = 0; n < job.cluster.nodes.size(); ++n) {
    const NodeId node(n);
    Unit unit;
    unit.node = node;
    unit.type = job.cluster.nodes[n].type;
    Position whole{node, devices[node]};
    if (whole.devices.empty()) {
      for (std::uint16_t d = 0; d < job.cluster.type_of(node).devices; ++d) {
        whole.devices.push_back(d);
      }
    }
    unit.slowdown = evaluator_.slowdown(request.state, whole);
    unit.inside = request.state.links(node).inside;
    unit.drained = request.state.is_drained(node);
    unit.pinned = n < request.pinned.size() && request.pinned[n];
    held_.emplace_back();
    if (const auto it = home.find(node); it != home.end()) {
      unit.home = it->second;
      at_[it->second] = static_cast<std::uint32_t>(units_.size());
      held_.back() = stage_layers(current, unit.home / stages_, unit.home % stages_, layers_);
    }
    units_.push_back(unit);
    positions_.push_back(std::move(whole));
  }
  for (std::uint32_t type = 0; type < job.cluster.node_types.size(); ++type) {
    tables_.push_back(&evaluator_.table({type, width_, current.sp_width > 1}));
    rules_.push_back(memory_rule(job, type, replicas_));
  }
  column_ = current;
  column_.pp_splits = {0};
  column_.replica_splits.clear();
  for (auto& row : column_.placement) {
    row.resize(1);
  }
  const double share = job.zero_stage > 0 ? job.optimizer_bytes_per_param / replicas_
                                          : job.optimizer_bytes_per_param;
  full_bytes_.assign(layers_, 0);
  share_bytes_.assign(layers_, 0);
  for (const OpNode& op : job.graph.nodes) {
    const double params = op.param_bytes / job.bytes_per_param;
    full_bytes_[op.layer] += params * (job.bytes_per_param + share);
    share_bytes_[op.layer] += job.zero_stage > 0 ? params * share : 0;
  }
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const LayerRange range = stage_layers(current, r, s, layers_);
      stage_of_.insert(stage_of_.end(), range.last - range.first, s);
    }
  }
  if (units_.size() <= kTabledUnits) {
    for (const Position& from : positions_) {
      for (const Position& to : positions_) {
        links_.push_back(link_between(job.cluster, from, to, request.state));
      }
    }
  }
  out_.assign(units_.size(), 0);
  in_.assign(units_.size(), 0);
}

Parts::Stage Parts::stage(std::uint32_t unit, std::uint32_t replica, LayerRange range,
                          std::uint32_t held) {
  const Unit& u = units_[unit];
  const LayerTable& table = *tables_[u.type];
  const MemoryRule& rule = rules_[u.type];
  const LayerCost sum = table.sum(range);
  Stage stage;
  stage.params = sum.params;
  StageFit fit{sum.times.forward_s,
               sum.times.backward_s,
               sum.times.forward_comm_s,
               sum.times.backward_comm_s,
               0,
               {}};
  if (job_.capabilities.recompute) {
    const double plain =
        sum.params * rule.state_bytes_per_param + held * sum.stash_bytes + sum.work_bytes;
    if (plain > rule.capacity_bytes) {
      const auto found = fit_stage(table, rule, range, held, {u.slowdown, u.inside});
      if (!found) {
        return stage;
      }
      fit = *found;
    }
  } else {
    const std::vector<bool>& flags = request_.current.checkpoint_of(replica);
    double again = 0;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      if (flags[l]) {
        fit.backward_s += table[l].times.forward_s;
        fit.backward_comm_s += table[l].times.forward_comm_s;
        again += table[l].forward_flops;
      }
    }
    if (stage_memory_bytes(table, rule, range, held, flags) > rule.capacity_bytes ||
        again > rule.recompute_ratio * sum.flops * (1 + kRounding)) {
      return stage;
    }
  }
  stage.fits = true;
  stage.forward_s = fit.forward_s * u.slowdown + fit.forward_comm_s * u.inside;
  stage.backward_s = fit.backward_s * u.slowdown + fit.backward_comm_s * u.inside;
  return stage;
}

bool Parts::can_receive(std::uint32_t unit, std::uint32_t replica, LayerRange range) const {
  const Unit& u = units_[unit];
  const LayerTable& table = *tables_[u.type];
  const double optimizer = job_.optimizer_bytes_per_param / (job_.zero_stage > 0 ? replicas_ : 1);
  const LayerRange& had = held_[unit];
  const LayerRange both{std::max(range.first, had.first), std::min(range.last, had.last)};
  const double kept = both.first < both.last ? table.sum(both).params : 0;
  double bytes = (table.sum(range).params - kept) * (job_.bytes_per_param + optimizer);
  if (u.home != kNone) {
    bytes +=
        table.sum(had).params * (job_.bytes_per_param + job_.gradient_bytes_per_param + optimizer);
    bytes += job_.zero_stage > 0 && u.home / stages_ != replica ? kept * optimizer : 0;
  }
  return bytes <= rules_[u.type].capacity_bytes;
}

Parts::Delay Parts::delay(std::uint32_t unit, std::uint32_t next, std::uint32_t layer) {
  const LayerTable& table = *tables_[units_[unit].type];
  const double bytes = table.cut_bytes(layer);
  const auto link = [&](std::uint32_t a, std::uint32_t b) {
    return links_.empty() ? link_between(job_.cluster, positions_[a], positions_[b], request_.state)
                          : links_[a * units_.size() + b];
  };
  const CostModel& model = evaluator_.model();
  return {model.hop(link(unit, next), table.sharding(), bytes, stages_).delay_s,
          model.hop(link(next, unit), table.sharding(), bytes, stages_).delay_s};
}

Ring Parts::ring(std::span<const std::uint32_t> column) {
  for (std::size_t r = 0; r < column.size(); ++r) {
    column_.placement[r][0] = positions_[column[r]];
  }
  return replica_rings(job_.cluster, column_, request_.state)[0];
}

StepTail Parts::tail(const Ring& ring, std::uint32_t unit) const {
  return evaluator_.model().step_tail(ring, tables_[units_[unit].type]->sharding());
}

double Parts::bytes(std::uint32_t replica, std::uint32_t unit, std::uint32_t layer) const {
  if (unit_at(replica, stage_of_[std::size_t{replica} * layers_ + layer]) == unit) {
    return 0;
  }
  const bool had = layer >= held_[unit].first && layer < held_[unit].last;
  return had ? share_bytes_[layer] : full_bytes_[layer];
}

double Parts::arrival_s(std::uint32_t replica, std::uint32_t unit, std::uint32_t layer) const {
  return bytes(replica, unit, layer) * request_.state.links(units_[unit].node).receive /
         nics_bytes_per_s(unit);
}

double Parts::transfer_s(std::uint32_t replica, std::span<const std::uint32_t> row,
                         std::span<const std::uint32_t> cuts) {
  const std::uint32_t* stage_of = &stage_of_[std::size_t{replica} * layers_];
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> over_paths;
  const bool paths = !request_.state.paths.empty();
  for (std::uint32_t s = 0; s < stages_; ++s) {
    const std::uint32_t to = row[s];
    const std::uint32_t last = s + 1 < stages_ ? cuts[s + 1] : layers_;
    for (std::uint32_t l = cuts[s]; l < last; ++l) {
      const std::uint32_t from = unit_at(replica, stage_of[l]);
      if (from == to) {
        continue;
      }
      const double moved = bytes(replica, to, l);
      out_[from] += moved;
      in_[to] += moved;
      if (paths) {
        over_paths[{from, to}] += moved;
      }
    }
  }
  double slowest = 0;
  const auto drain = [&](std::uint32_t unit) {
    const NodeLinks links = request_.state.links(units_[unit].node);
    slowest = std::max({slowest, out_[unit] * links.send / nics_bytes_per_s(unit),
                        in_[unit] * links.receive / nics_bytes_per_s(unit)});
    out_[unit] = in_[unit] = 0;
  };
  for (std::uint32_t s = 0; s < stages_; ++s) {
    drain(row[s]);
    drain(unit_at(replica, s));
  }
  for (const auto& [pair, moved] : over_paths) {
    const NodeId from = units_[pair.first].node;
    const NodeId to = units_[pair.second].node;
    if (const double factor = request_.state.path(from, to); factor != 1) {
      const double rate =
          std::min(nics_bytes_per_s(pair.first) / request_.state.links(from).send,
                   nics_bytes_per_s(pair.second) / request_.state.links(to).receive);
      slowest = std::max(slowest, moved * factor / rate);
    }
  }
  return slowest;
}

Plan Parts::plan(const std::vector<std::vector<std::uint32_t>>& rows,
                 const std::vector<std::vector<std::uint32_t>>& cuts,
                 const std::vector<std::uint32_t>& microbatches) {
  Plan plan = request_.current;
  plan.microbatches = microbatches;
  plan.pp_splits = cuts[0];
  plan.replica_splits.clear();
  plan.predicted = {};
  if (std::any_of(cuts.begin(), cuts.end(), [&](const auto& c) { return c != cuts[0]; })) {
    plan.replica_splits = cuts;
  }
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      plan.placement[r][s] = positions_[rows[r][s]];
    }
  }
  if (!job_.capabilities.recompute) {
    return plan;
  }
  std::vector<std::vector<bool>> flags(replicas_, std::vector<bool>(layers_, false));
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const LayerRange range = stage_layers(plan, r, s, layers_);
      const Unit& unit = units_[rows[r][s]];
      const std::uint32_t type = unit.type;
      const auto fit = fit_stage(*tables_[type], rules_[type], range,
                                 in_flight(plan.schedule, stages_, s, microbatches[r]),
                                 {unit.slowdown, unit.inside});
      TAPAS_CHECK(fit.has_value(), "stage {} of replica {} does not fit", s, r);
      mark_recomputed(*tables_[type], range, *fit, flags[r]);
    }
  }
  plan.checkpoint = flags[0];
  plan.replica_checkpoint.clear();
  if (std::any_of(flags.begin(), flags.end(), [&](const auto& f) { return f != flags[0]; })) {
    plan.replica_checkpoint = std::move(flags);
  }
  return plan;
}

}  // namespace tapas::solver::testing
