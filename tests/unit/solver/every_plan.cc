#include "every_plan.h"

#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"
#include "solver/search/place.h"
#include "solver/search/shapes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace tapas::solver::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The fastest recomputation of one stage.
struct Stage {
  double backward_s = kInfinity;  ///< with recomputation and its collectives
  double memory_bytes = 0;        ///< as the document model counts it
  std::uint32_t flags = 0;        ///< bit per layer of the range
};

class Enumeration {
 public:
  explicit Enumeration(const Job& job)
      : job_(job),
        model_(make_cost_model(job)),
        pools_(usable_pools(job.cluster)),
        layers_(job.graph.layer_count()) {
    best_.step_s = best_.objective = kInfinity;
  }

  EveryPlan run() {
    std::uint32_t devices = 0;
    for (const Pool& pool : pools_) {
      devices += devices_of(pool);
    }
    for (const bool sequence_parallel : {false, true}) {
      kinds_.clear();
      tables_.clear();
      for (std::uint32_t p = 0; p < pools_.size(); ++p) {
        for (const std::uint32_t width : list_widths(job_, pools_[p])) {
          const Sharding sharding{pools_[p].node_type, static_cast<std::uint16_t>(width),
                                  sequence_parallel};
          kinds_.push_back({p, sharding.width});
          tables_.push_back(std::make_unique<LayerTable>(job_, *model_, sharding));
        }
      }
      for (replicas_ = 1; replicas_ <= std::min(devices, job_.total_microbatches()); ++replicas_) {
        stages_.clear();
        for (std::uint32_t s = job_.search.min_stages;
             s <= std::min(job_.search.max_stages, layers_); ++s) {
          choose_kinds({}, s);
        }
      }
    }
    return std::move(best_);
  }

 private:
  [[nodiscard]] std::uint32_t devices_of(const Pool& pool) const {
    return static_cast<std::uint32_t>(pool.nodes.size()) *
           job_.cluster.node_types[pool.node_type].devices;
  }

  void choose_kinds(std::vector<std::uint32_t> row, std::uint32_t stages) {
    if (row.size() == stages) {
      const bool alike = std::all_of(row.begin(), row.end(),
                                     [&](std::uint32_t kind) { return kind == row.front(); });
      if (alike || job_.search.stage_widths || pools_.size() > 1) {
        place_row(row);
      }
      return;
    }
    for (std::uint32_t kind = 0; kind < kinds_.size(); ++kind) {
      row.push_back(kind);
      std::vector<std::uint32_t> taken(pools_.size(), 0);
      for (const std::uint32_t k : row) {
        taken[kinds_[k].pool] += kinds_[k].width * replicas_;
      }
      bool room = true;
      for (std::size_t p = 0; p < pools_.size(); ++p) {
        room = room && taken[p] <= devices_of(pools_[p]);
      }
      if (room) {
        choose_kinds(row, stages);
      }
      row.pop_back();
    }
  }

  void place_row(const std::vector<std::uint32_t>& row) {
    std::vector<PlacedGroup> groups;
    for (const std::uint32_t kind : row) {
      groups.push_back(kinds_[kind]);
    }
    for (std::uint32_t k = 0; k < kLayouts; ++k) {
      Plan plan;
      plan.job = job_.name;
      plan.schedule = job_.schedule;
      plan.placement = place(job_.cluster, pools_, groups, replicas_, static_cast<Layout>(k));
      if (plan.placement.empty()) {
        continue;
      }
      const std::uint32_t total = job_.total_microbatches();
      for (std::uint32_t r = 0; r < replicas_; ++r) {
        plan.microbatches.push_back(total / replicas_ + (r < total % replicas_ ? 1 : 0));
      }
      for (std::uint32_t s = 0; s < row.size(); ++s) {
        plan.pp_splits.push_back(s);
      }
      plan.tp_width.assign(layers_, 1);
      tails_.clear();
      const std::vector<Ring> rings = replica_rings(job_.cluster, plan);
      for (std::size_t s = 0; s < row.size(); ++s) {
        tails_.push_back(model_->step_tail(rings[s], tables_[row[s]]->sharding()));
      }
      for_each_cut(layers_, static_cast<std::uint32_t>(row.size()),
                   [&](const auto& cuts) { time_row(plan, row, cuts); });
    }
  }

  /// All subsets of the layers.
  const Stage& stage(std::uint32_t kind, std::uint32_t held, LayerRange range) {
    const auto [it, added] = stages_.try_emplace({kind, held, range.first, range.last});
    if (!added) {
      return it->second;
    }
    const LayerTable& table = *tables_[kind];
    const MemoryRule rule = memory_rule(job_, table.sharding().node_type, replicas_);
    double flops = 0;
    double largest = 0;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      flops += table[l].flops;
      largest = std::max(largest, table[l].stash_bytes);
    }
    const std::uint32_t length = range.last - range.first;
    for (std::uint32_t flags = 0; flags < (1U << length); ++flags) {
      double backward = 0;
      double again = 0;
      std::vector<bool> checkpoint(layers_, false);
      for (std::uint32_t k = 0; k < length; ++k) {
        const LayerCost& cost = table[range.first + k];
        const bool flag = (flags >> k & 1U) != 0;
        checkpoint[range.first + k] = flag;
        backward += cost.times.backward_s + cost.times.backward_comm_s;
        backward += flag ? cost.times.forward_s + cost.times.forward_comm_s : 0;
        again += flag ? cost.forward_flops : 0;
      }
      if (backward < it->second.backward_s && again <= rule.recompute_ratio * flops &&
          stage_memory_bytes(table, rule, range, held, checkpoint) <= rule.capacity_bytes) {
        const double kept = length - static_cast<double>(__builtin_popcount(flags));
        it->second = {
            backward,
            table.sum(range).params * rule.state_bytes_per_param + largest * kept / length, flags};
      }
    }
    return it->second;
  }

  void time_row(Plan& plan, const std::vector<std::uint32_t>& row,
                const std::vector<std::uint32_t>& cuts) {
    const auto stages = static_cast<std::uint32_t>(row.size());
    const std::uint32_t most = plan.microbatches.front();
    pipeline_.schedule = plan.schedule;
    std::vector<double> forward;
    std::vector<double> backward;
    std::vector<double> params;
    std::vector<std::uint32_t> flags;
    double memory = 0;
    double tp_comm = 0;
    double update = 0;
    for (std::uint32_t s = 0; s < stages; ++s) {
      const LayerRange range{cuts[s], s + 1 < stages ? cuts[s + 1] : layers_};
      const Stage& best = stage(row[s], in_flight(plan.schedule, stages, s, most), range);
      if (best.backward_s == kInfinity) {
        return;
      }
      const LayerCost sum = tables_[row[s]]->sum(range);
      forward.push_back(sum.times.forward_s + sum.times.forward_comm_s);
      backward.push_back(best.backward_s);
      params.push_back(sum.params);
      flags.push_back(best.flags);
      memory = std::max(memory, best.memory_bytes);
      tp_comm += tails_[s].sync_s(sum.params);
      update = std::max(update, tails_[s].update_s(sum.params));
    }
    ++best_.plans;
    double finished = 0;
    double busy = 0;
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      pipeline_.forward_delay_s.clear();
      pipeline_.backward_delay_s.clear();
      busy = 0;
      for (std::uint32_t s = 0; s + 1 < stages; ++s) {
        const Position& a = plan.placement[r][s];
        const Position& b = plan.placement[r][s + 1];
        Sharding sharding = tables_[row[s]]->sharding();
        sharding.width = std::min(sharding.width, tables_[row[s + 1]]->sharding().width);
        const double bytes = tables_[row[s]]->cut_bytes(cuts[s + 1]);
        const Hop there = model_->hop(link_between(job_.cluster, a, b), sharding, bytes, stages);
        const Hop back = model_->hop(link_between(job_.cluster, b, a), sharding, bytes, stages);
        pipeline_.forward_delay_s.push_back(there.delay_s);
        pipeline_.backward_delay_s.push_back(back.delay_s);
        busy = std::max(busy, there.busy_s);
      }
      pipeline_.forward_s = forward;
      pipeline_.backward_s = backward;
      for (std::uint32_t s = 0; s < stages; ++s) {
        pipeline_.forward_s[s] += busy;
        pipeline_.backward_s[s] += busy;
      }
      const auto ends = clock_.ends_s(pipeline_, plan.microbatches[r]);
      for (std::uint32_t s = 0; s < stages; ++s) {
        finished = std::max(finished, ends[s] + tails_[s].sync_s(params[s]));
      }
    }
    double longest = 0;
    for (std::uint32_t s = 0; s < stages; ++s) {
      longest = std::max(longest, pipeline_.forward_s[s] + pipeline_.backward_s[s]);
    }
    const ObjectiveWeights& weights = job_.search.weights;
    const double objective = weights.memory_per_byte * memory +
                             weights.communication_per_s * (tp_comm + 2 * busy) +
                             weights.stage_time_per_s * longest;
    best_.objective = std::min(best_.objective, objective);
    if (finished + update < best_.step_s) {
      best_.step_s = finished + update;
      best_.plan = plan;
      best_.plan.pp_splits = cuts;
      best_.plan.checkpoint.assign(layers_, false);
      for (std::uint32_t s = 0; s < stages; ++s) {
        const std::uint32_t end = s + 1 < stages ? cuts[s + 1] : layers_;
        for (std::uint32_t l = cuts[s]; l < end; ++l) {
          best_.plan.tp_width[l] = tables_[row[s]]->sharding().width;
          best_.plan.checkpoint[l] = (flags[s] >> (l - cuts[s]) & 1U) != 0;
        }
      }
      best_.plan.sp_width =
          tables_.front()->sharding().sequence_parallel
              ? *std::max_element(best_.plan.tp_width.begin(), best_.plan.tp_width.end())
              : std::uint16_t{1};
    }
  }

  const Job& job_;
  std::unique_ptr<const CostModel> model_;
  std::vector<Pool> pools_;
  std::uint32_t layers_;
  std::vector<PlacedGroup> kinds_;
  std::vector<std::unique_ptr<LayerTable>> tables_;
  std::uint32_t replicas_ = 1;
  std::vector<StepTail> tails_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, Stage> stages_;
  Pipeline pipeline_;
  PipelineClock clock_;
  EveryPlan best_;
};

}  // namespace

Job random_small_job(std::uint64_t seed) {
  Draw draw(seed * 7919 + 13);
  const bool two_types = seed % 4 == 1;
  // Most cases are small, so that there can be many; some reach the full size.
  const bool large = seed % 50 == 0;
  const std::uint32_t layers = large ? draw.between(8U, 10U) : draw.between(2U, 6U);
  const std::uint32_t devices = 1U << draw.between(0U, 2U);
  const std::uint32_t nodes = draw.between(1U, 2U + (devices < 4 ? 1U : 0U));
  Job job = uneven_job(seed, layers, nodes, devices, draw.between(1U, 9U));
  job.cluster.device_types.front().memory_bytes = 400e9;
  for (Node& node : job.cluster.nodes) {
    node.tor = draw.between(0U, 1U) == 0 ? "tor0" : "tor1";
    node.pod = "pod0";
  }
  job.cluster.pod.oversubscription = draw.between(1.0, 4.0);
  if (two_types) {
    DeviceType slower = job.cluster.device_types.front();
    slower.name = "slower";
    slower.peak_flops *= draw.between(0.2, 1.1);
    slower.memory_bytes *= draw.between(0.5, 1.5);
    slower.collective_library = draw.between(0U, 1U) == 0 ? "nccl" : "hccl";
    job.cluster.device_types.push_back(slower);
    NodeType type = job.cluster.node_types.front();
    type.name = "other";
    type.device_type = 1;
    type.devices = 1U << draw.between(0U, 1U);
    type.nics = 1;
    type.fast_link_bytes_per_s *= draw.between(0.3, 1.0);
    job.cluster.node_types.push_back(type);
    Node node = job.cluster.nodes.front();
    node.name = "other0";
    node.type = 1;
    job.cluster.nodes.push_back(node);
  }
  for (OpEdge& edge : job.graph.edges) {
    edge.bytes *= draw.between(0.2, 8.0);
  }
  job.schedule = draw.between(0U, 4U) == 0 ? Schedule::kGpipe : Schedule::k1f1b;
  job.zero_stage = draw.between(0U, 1U);
  job.search.max_stages = large ? 4 : draw.between(1U, 4U);
  job.search.stage_widths = !large && draw.between(0U, 1U) == 0;
  const double ratios[] = {0, 0.15, 0.35, 1};
  job.limits.recompute_ratio = ratios[draw.between(0U, 3U)];
  job.limits.memory_reserve_ratio = 0;
  double params = 0;
  double stash = 0;
  for (const OpNode& op : job.graph.nodes) {
    params += op.param_bytes;
    stash += op.act_bytes;
  }
  // From far too little for one device to plenty.
  const double one = params / 2 * 18 + stash * draw.between(1.0, 3.0);
  job.limits.device_memory_bytes = one * draw.between(0.08, 1.3);
  return job;
}

EveryPlan try_every_plan(const Job& job) { return Enumeration(job).run(); }

}  // namespace tapas::solver::testing
