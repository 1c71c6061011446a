#include "solver/cost/layer_table.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tapas::solver {
namespace {

void add(LayerCost& to, const LayerCost& what) {
  to.times.forward_s += what.times.forward_s;
  to.times.backward_s += what.times.backward_s;
  to.times.forward_comm_s += what.times.forward_comm_s;
  to.times.backward_comm_s += what.times.backward_comm_s;
  to.params += what.params;
  to.stash_bytes += what.stash_bytes;
  to.input_bytes += what.input_bytes;
  to.forward_flops += what.forward_flops;
  to.flops += what.flops;
  to.wire_forward_bytes += what.wire_forward_bytes;
  to.wire_backward_bytes += what.wire_backward_bytes;
}

LayerCost difference(const LayerCost& a, const LayerCost& b) {
  LayerCost d;
  d.times = {a.times.forward_s - b.times.forward_s, a.times.backward_s - b.times.backward_s,
             a.times.forward_comm_s - b.times.forward_comm_s,
             a.times.backward_comm_s - b.times.backward_comm_s};
  d.params = a.params - b.params;
  d.stash_bytes = a.stash_bytes - b.stash_bytes;
  d.input_bytes = a.input_bytes - b.input_bytes;
  d.forward_flops = a.forward_flops - b.forward_flops;
  d.flops = a.flops - b.flops;
  d.wire_forward_bytes = a.wire_forward_bytes - b.wire_forward_bytes;
  d.wire_backward_bytes = a.wire_backward_bytes - b.wire_backward_bytes;
  return d;
}

struct LayerHash {
  std::size_t operator()(const LayerCost& cost) const {
    std::size_t seed = 0;
    for (const double value :
         {cost.times.forward_s, cost.times.backward_s, cost.times.forward_comm_s,
          cost.times.backward_comm_s, cost.params, cost.stash_bytes, cost.input_bytes,
          cost.work_bytes, cost.forward_flops, cost.flops}) {
      seed = seed * 0x9E3779B97F4A7C15U + std::hash<double>()(value);
    }
    return seed;
  }
};

}  // namespace

std::vector<double> cut_bytes(const Graph& graph) {
  const std::uint32_t layers = graph.layer_count();
  std::unordered_map<std::uint32_t, std::uint32_t> layer_of;
  for (const OpNode& op : graph.nodes) {
    layer_of[op.id] = op.layer;
  }
  // For each producer the farthest layer that needs its output.
  struct Reach {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    double bytes = 0;
  };
  std::unordered_map<std::uint32_t, Reach> reach;
  for (const OpEdge& edge : graph.edges) {
    Reach& r = reach[edge.src];
    r.from = layer_of[edge.src];
    r.to = std::max(r.to, layer_of[edge.dst]);
    r.bytes = std::max(r.bytes, edge.bytes);
  }
  std::vector<double> bytes(layers + 1, 0);
  for (const OpNode& op : graph.nodes) {
    if (const auto it = reach.find(op.id); it != reach.end()) {
      for (std::uint32_t cut = it->second.from + 1; cut <= it->second.to; ++cut) {
        bytes[cut] += it->second.bytes;
      }
    }
  }
  return bytes;
}

LayerTable::LayerTable(const Job& job, const CostModel& model, const Sharding& sharding)
    : sharding_(sharding),
      cost_(job.graph.layer_count()),
      cut_bytes_(solver::cut_bytes(job.graph)) {
  const double width = sharding.width;
  const double wire = 2 * (width - 1) / width;  // of a ring all-reduce, per byte reduced
  std::unordered_map<std::uint32_t, double> input_bytes;
  for (const OpEdge& edge : job.graph.edges) {
    double& input = input_bytes[edge.dst];
    input = std::max(input, edge.bytes);
  }
  for (const OpNode& op : job.graph.nodes) {
    LayerCost& cost = cost_[op.layer];
    const double work_share = splits_work(op.kind, sharding) ? 1 / width : 1;
    cost.params += op.param_bytes / job.bytes_per_param / (splits_params(op.kind) ? width : 1);
    cost.stash_bytes += op.act_bytes / (splits_stash(op.kind, sharding) ? width : 1);
    cost.work_bytes = std::max(cost.work_bytes, op.work_bytes * work_share);
    cost.forward_flops += op.fwd_flops;
    cost.flops += op.fwd_flops + op.bwd_flops;
    if (op.kind == OpKind::kRowParallelLinear || op.kind == OpKind::kMoe ||
        op.kind == OpKind::kEmbedding) {
      cost.wire_forward_bytes += wire * op.out_bytes;
    }
    if (op.kind == OpKind::kColumnParallelLinear || op.kind == OpKind::kMoe ||
        op.kind == OpKind::kHead) {
      cost.wire_backward_bytes += wire * input_bytes[op.id];
    }
  }
  const double input_share = sharding.sequence_parallel ? 1 / width : 1;
  for (std::uint32_t l = 0; l < layers(); ++l) {
    cost_[l].times = model.layer_times(l, sharding);
    cost_[l].input_bytes = std::min(cut_bytes_[l] * input_share, cost_[l].stash_bytes);
  }

  before_.resize(cost_.size() + 1);
  for (std::uint32_t l = 0; l < layers(); ++l) {
    before_[l + 1] = before_[l];
    add(before_[l + 1], cost_[l]);
  }
  index_types();
  index_work();
}

void LayerTable::index_types() {
  std::unordered_map<LayerCost, std::uint32_t, LayerHash> known;
  type_.reserve(cost_.size());
  for (const LayerCost& cost : cost_) {
    type_.push_back(
        known.try_emplace(cost, static_cast<std::uint32_t>(known.size())).first->second);
  }
  types_ = static_cast<std::uint32_t>(known.size());
  type_begin_.assign(types_ + 1, 0);
  for (const std::uint32_t type : type_) {
    ++type_begin_[type + 1];
  }
  std::partial_sum(type_begin_.begin(), type_begin_.end(), type_begin_.begin());
  by_type_.resize(cost_.size());
  std::vector<std::uint32_t> next = type_begin_;
  for (std::uint32_t l = 0; l < layers(); ++l) {
    by_type_[next[type_[l]]++] = l;
  }
}

void LayerTable::index_work() {
  std::vector<double>& single = work_.emplace_back();
  for (const LayerCost& cost : cost_) {
    single.push_back(cost.work_bytes);
  }
  for (std::size_t half = 1; 2 * half <= cost_.size(); half *= 2) {
    const std::vector<double>& halves = work_.back();
    std::vector<double> whole(cost_.size() - 2 * half + 1);
    for (std::size_t l = 0; l < whole.size(); ++l) {
      whole[l] = std::max(halves[l], halves[l + half]);
    }
    work_.push_back(std::move(whole));
  }
}

std::uint32_t LayerTable::count(std::uint32_t type, LayerRange range) const {
  const auto begin = by_type_.begin() + type_begin_[type];
  const auto end = by_type_.begin() + type_begin_[type + 1];
  const auto first = std::lower_bound(begin, end, range.first);
  return static_cast<std::uint32_t>(std::lower_bound(first, end, range.last) - first);
}

LayerCost LayerTable::sum(LayerRange range) const {
  LayerCost total = difference(before_[range.last], before_[range.first]);
  if (const std::uint32_t n = range.last - range.first; n > 0) {
    std::uint32_t k = 0;
    while (n >> (k + 1U) != 0) {
      ++k;
    }
    total.work_bytes = std::max(work_[k][range.first], work_[k][range.last - (1U << k)]);
  }
  return total;
}

}  // namespace tapas::solver
