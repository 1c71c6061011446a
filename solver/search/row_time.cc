#include "solver/search/row_time.h"

#include <algorithm>
#include <utility>

namespace tapas::solver {
namespace {

bool same(const std::vector<Link>& a, const std::vector<Link>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Link& x, const Link& y) {
    return x.latency_s == y.latency_s && x.bytes_per_s == y.bytes_per_s;
  });
}

}  // namespace

bool operator==(const PlacedRow::Replica& a, const PlacedRow::Replica& b) {
  return a.microbatches == b.microbatches && same(a.there, b.there) && same(a.back, b.back);
}

RowTimes::RowTimes(const Cluster& cluster, const std::vector<Pool>& pools, const CostModel& model,
                   RowCosts& costs, std::vector<std::uint32_t> microbatches)
    : cluster_(cluster),
      pools_(pools),
      model_(model),
      costs_(costs),
      microbatches_(std::move(microbatches)) {
  pipeline_.schedule = costs.problem().schedule;
}

const PlacedRow* RowTimes::placed(const std::vector<std::uint32_t>& kinds, Layout layout) {
  auto [it, added] = placed_[static_cast<std::size_t>(layout)].try_emplace(kinds);
  if (!added) {
    return it->second.get();
  }
  const RowProblem& problem = costs_.problem();
  std::vector<PlacedGroup> groups;
  for (const std::uint32_t kind : kinds) {
    groups.push_back(
        {problem.kinds[kind].pool, static_cast<std::uint16_t>(problem.kinds[kind].width())});
  }
  Plan plan;  // what the rings are read from
  plan.placement = place(cluster_, pools_, groups, problem.replicas, layout);
  if (plan.placement.empty()) {
    return nullptr;
  }
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    plan.pp_splits.push_back(g);
  }
  plan.tp_width.assign(groups.size(), 1);
  auto result = std::make_unique<PlacedRow>();
  const std::vector<Ring> rings = replica_rings(cluster_, plan);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    result->tails.push_back(model_.step_tail(rings[g], problem.kinds[kinds[g]].table->sharding()));
  }
  for (std::uint32_t r = 0; r < problem.replicas; ++r) {
    PlacedRow::Replica replica;
    replica.microbatches = microbatches_[r];
    const auto& row = plan.placement[r];
    for (std::size_t g = 0; g < row.size(); ++g) {
      const Position& next = row[(g + 1) % row.size()];
      replica.there.push_back(link_between(cluster_, row[g], next));
      replica.back.push_back(link_between(cluster_, next, row[g]));
    }
    if (std::find(result->replicas.begin(), result->replicas.end(), replica) ==
        result->replicas.end()) {
      result->replicas.push_back(std::move(replica));
    }
  }
  // A replica with the same links and fewer microbatches is never the slowest.
  std::erase_if(result->replicas, [&](const PlacedRow::Replica& a) {
    return std::any_of(
        result->replicas.begin(), result->replicas.end(), [&](const PlacedRow::Replica& b) {
          return b.microbatches > a.microbatches && same(a.there, b.there) && same(a.back, b.back);
        });
  });
  result->placement = std::move(plan.placement);
  it->second = std::move(result);
  return it->second.get();
}

bool RowTimes::set_stages(const Row& row) {
  const std::uint32_t layers = costs_.problem().layers();
  fits_.clear();
  for (std::uint32_t s = 0; s < row.stages(); ++s) {
    const StageFit* fit = costs_.fit(row.kinds[s], row.stages() - 1 - s, row.range(s, layers));
    if (fit == nullptr) {
      return false;
    }
    fits_.push_back(fit);
  }
  return true;
}

double RowTimes::synchronised_s(const Row& row, std::uint32_t group, std::uint32_t chunks,
                                const StepTail& tail, std::span<const double> ends) {
  const RowProblem& problem = costs_.problem();
  const std::uint32_t groups = row.stages() / chunks;
  const LayerTable& table = *problem.kinds[row.kinds[group]].table;
  double done = 0;
  double params = 0;
  // As in PlanEvaluator: chunks and their layers from last to first.
  std::vector<bool> flags;
  for (std::uint32_t c = chunks; c-- > 0;) {
    const std::uint32_t k = c * groups + group;
    const LayerRange range = row.range(k, problem.layers());
    if (!problem.overlap_gradients) {
      done = std::max(done, ends[k]);
      params += table.sum(range).params;
      continue;
    }
    flags.assign(problem.layers(), false);
    mark_recomputed(table, range, *fits_[k], flags);
    const auto backward = [&](std::uint32_t l) {
      const LayerTimes& t = table[l].times;
      return t.backward_s + t.backward_comm_s + (flags[l] ? t.forward_s + t.forward_comm_s : 0);
    };
    double left = 0;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      left += backward(l);
    }
    for (std::uint32_t l = range.last; l-- > range.first;) {
      left -= backward(l);
      if (table[l].params > 0) {
        done = std::max(done, ends[k] - left) + tail.sync_s(table[l].params);
      }
    }
    done = std::max(done, ends[k]);
  }
  return problem.overlap_gradients ? done : done + tail.sync_s(params);
}

double RowTimes::finish_s(const Row& row, const PlacedRow& placed, std::uint32_t chunks) {
  ++evaluated_;
  const RowProblem& problem = costs_.problem();
  const std::uint32_t stages = row.stages();
  const std::uint32_t groups = stages / chunks;
  pipeline_.chunks = chunks;
  pipeline_.forward_delay_s.resize(stages - 1);
  pipeline_.backward_delay_s.resize(stages - 1);
  double synchronised = 0;
  double update = 0;
  for (const PlacedRow::Replica& replica : placed.replicas) {
    double busy = 0;
    for (std::uint32_t k = 0; k + 1 < stages; ++k) {
      const GroupKind& kind = problem.kinds[row.kinds[k % groups]];
      const GroupKind& next = problem.kinds[row.kinds[(k + 1) % groups]];
      Sharding sharding = kind.table->sharding();
      sharding.width = std::min(sharding.width, next.table->sharding().width);
      const double bytes = kind.table->cut_bytes(row.cuts[k + 1]);
      const Hop there = model_.hop(replica.there[k % groups], sharding, bytes, groups);
      const Hop back = model_.hop(replica.back[k % groups], sharding, bytes, groups);
      pipeline_.forward_delay_s[k] = there.delay_s;
      pipeline_.backward_delay_s[k] = back.delay_s;
      busy = std::max(busy, there.busy_s);
    }
    pipeline_.forward_s.clear();
    pipeline_.backward_s.clear();
    for (std::uint32_t k = 0; k < stages; ++k) {
      pipeline_.forward_s.push_back(fits_[k]->forward_s + fits_[k]->forward_comm_s + busy);
      pipeline_.backward_s.push_back(fits_[k]->backward_s + fits_[k]->backward_comm_s + busy);
    }
    work_ += std::uint64_t{stages} * replica.microbatches;
    const std::span<const double> ends = clock_.ends_s(pipeline_, replica.microbatches);
    ends_s_ = ends;
    for (std::uint32_t g = 0; g < groups; ++g) {
      synchronised = std::max(synchronised, synchronised_s(row, g, chunks, placed.tails[g], ends));
    }
  }
  for (std::uint32_t g = 0; g < groups; ++g) {
    double params = 0;
    for (std::uint32_t k = g; k < stages; k += groups) {
      params += problem.kinds[row.kinds[g]].table->sum(row.range(k, problem.layers())).params;
    }
    update = std::max(update, placed.tails[g].update_s(params));
  }
  return synchronised + update;
}

double RowTimes::step_s(const Row& row, Layout layout) {
  const PlacedRow* where = placed(row.kinds, layout);
  return where != nullptr && set_stages(row) ? finish_s(row, *where, 1) : kNever;
}

double RowTimes::best_step_s(const Row& row, Layout* layout) {
  if (!set_stages(row)) {
    return kNever;
  }
  double best = kNever;
  for (std::uint32_t k = 0; k < kLayouts; ++k) {
    const PlacedRow* where = placed(row.kinds, static_cast<Layout>(k));
    const double step = where != nullptr ? finish_s(row, *where, 1) : kNever;
    if (step < best) {
      best = step;
      if (layout != nullptr) {
        *layout = static_cast<Layout>(k);
      }
    }
    if (costs_.problem().replicas == 1 && row.stages() == 1) {
      break;
    }
  }
  return best;
}

double RowTimes::interleaved_step_s(const Row& row, std::uint32_t chunks,
                                    std::span<const StageFit> fits, Layout layout) {
  const std::vector<std::uint32_t> kinds(row.kinds.begin(),
                                         row.kinds.begin() + row.stages() / chunks);
  const PlacedRow* where = placed(kinds, layout);
  if (where == nullptr) {
    return kNever;
  }
  fits_.clear();
  for (const StageFit& fit : fits) {
    fits_.push_back(&fit);
  }
  return finish_s(row, *where, chunks);
}

RowTimes::Relaxed RowTimes::relaxed(const std::vector<std::uint32_t>& kinds) const {
  const RowProblem& problem = costs_.problem();
  Relaxed result;
  PlacedRow::Replica far;
  far.microbatches = problem.microbatches;
  PlacedRow::Replica near = far;
  result.shared.resize(kinds.size());
  for (std::size_t g = 0; g < kinds.size(); ++g) {
    const GroupKind& kind = problem.kinds[kinds[g]];
    const GroupKind& next = problem.kinds[kinds[(g + 1) % kinds.size()]];
    const Sharding& sharding = kind.table->sharding();
    const Sharding& other = next.table->sharding();
    const NodeType& node = cluster_.node_types[sharding.node_type];
    const Link inside = link_inside(node);
    const Link here = best_link_out(cluster_, sharding.node_type);
    const Link there = best_link_out(cluster_, other.node_type);
    const Link out{std::min(here.latency_s, there.latency_s),
                   std::min(here.bytes_per_s, there.bytes_per_s)};
    far.there.push_back(out);
    // Two groups share a node only when it has room for both.
    const std::uint32_t both = kind.width() + next.width();
    if (sharding.node_type == other.node_type && both <= node.devices && g + 1 < kinds.size()) {
      result.may_share = true;
      near.there.push_back({std::min(out.latency_s, inside.latency_s),
                            std::max(out.bytes_per_s, inside.bytes_per_s)});
      // Then both rings leave it, unless they may stay inside a node.
      const auto slowed = [&](const GroupKind& group) {
        Ring ring = best_ring(cluster_, sharding.node_type, group.width(), problem.replicas);
        if (problem.replicas * group.width() > node.devices) {
          ring.bytes_per_s = std::min(ring.bytes_per_s, node.nic_bytes_per_s * node.nics / both);
        }
        return model_.step_tail(ring, group.table->sharding());
      };
      result.shared[g] = {{slowed(kind), slowed(next)}};
    } else {
      near.there.push_back(out);
    }
    result.far.tails.push_back(kind.tail);
  }
  far.back = far.there;
  near.back = near.there;
  result.near.tails = result.far.tails;
  result.far.replicas.push_back(std::move(far));
  result.near.replicas.push_back(std::move(near));
  return result;
}

double RowTimes::least_step_s(const Row& row, double cutoff_s) {
  if (!set_stages(row)) {
    return kNever;
  }
  auto it = relaxed_.find(row.kinds);
  if (it == relaxed_.end()) {
    it = relaxed_.emplace(row.kinds, relaxed(row.kinds)).first;
  }
  const Relaxed& relaxed = it->second;
  const double together = finish_s(row, relaxed.near, 1);
  if (!relaxed.may_share || together >= cutoff_s) {
    return together;
  }
  // Neighbours that share a node have a short link, but their rings share its NICs: to stay below
  // the cutoff only those pairs may that have the time for it.
  const std::vector<double> ends(ends_s_.begin(), ends_s_.end());
  PlacedRow mixed = relaxed.far;
  for (std::uint32_t g = 0; g + 1 < row.stages(); ++g) {
    if (const auto& tails = relaxed.shared[g]) {
      double pair = 0;
      for (std::uint32_t k = 0; k < 2; ++k) {
        const RowProblem& problem = costs_.problem();
        const double params =
            problem.kinds[row.kinds[g + k]].table->sum(row.range(g + k, problem.layers())).params;
        pair = std::max(
            pair, synchronised_s(row, g + k, 1, (*tails)[k], ends) + (*tails)[k].update_s(params));
      }
      if (pair < cutoff_s) {
        mixed.replicas[0].there[g] = relaxed.near.replicas[0].there[g];
        mixed.replicas[0].back[g] = relaxed.near.replicas[0].back[g];
      }
    }
  }
  return finish_s(row, mixed, 1);
}

void RowTimes::polish(Row& row, double& time_s, Layout layout) {
  const RowProblem& problem = costs_.problem();
  const std::uint32_t layers = problem.layers();
  const std::uint32_t stages = row.stages();
  const auto valid = [&](const Row& r) {
    for (std::uint32_t s = 1; s < stages; ++s) {
      if (r.cuts[s] <= r.cuts[s - 1] || r.cuts[s] >= layers) {
        return false;
      }
    }
    std::vector<std::uint32_t> taken(problem.budget.size(), 0);
    for (const std::uint32_t kind : r.kinds) {
      taken[problem.kinds[kind].pool] += problem.kinds[kind].width();
    }
    for (std::size_t p = 0; p < taken.size(); ++p) {
      if (taken[p] > problem.budget[p]) {
        return false;
      }
    }
    return true;
  };
  bool improved = true;
  const auto attempt = [&](Row candidate) {
    if (!valid(candidate)) {
      return;
    }
    const double time = step_s(candidate, layout);
    if (time < time_s) {
      time_s = time;
      row = std::move(candidate);
      improved = true;
    }
  };
  while (improved) {
    improved = false;
    for (std::uint32_t first = 1; first < stages; ++first) {
      for (std::uint32_t last = first; last < stages; ++last) {
        for (const int by : {-1, 1}) {
          Row candidate = row;
          for (std::uint32_t s = first; s <= last; ++s) {
            candidate.cuts[s] += static_cast<std::uint32_t>(by);
          }
          attempt(std::move(candidate));
        }
      }
    }
    for (std::uint32_t s = 0; problem.kinds.size() > 1 && s < stages; ++s) {
      for (std::uint32_t kind = 0; kind < problem.kinds.size(); ++kind) {
        Row candidate = row;
        candidate.kinds[s] = kind;
        attempt(std::move(candidate));
      }
      for (std::uint32_t t = s + 1; t < stages; ++t) {
        if (row.kinds[s] != row.kinds[t]) {
          Row candidate = row;
          std::swap(candidate.kinds[s], candidate.kinds[t]);
          attempt(std::move(candidate));
        }
      }
    }
  }
}

}  // namespace tapas::solver
