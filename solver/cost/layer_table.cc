#include "solver/cost/layer_table.h"

#include <algorithm>
#include <unordered_map>

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
  type_.resize(cost_.size());
  std::vector<std::uint32_t> example;
  for (std::uint32_t l = 0; l < layers(); ++l) {
    before_[l + 1] = before_[l];
    add(before_[l + 1], cost_[l]);
    const auto same = std::find_if(example.begin(), example.end(),
                                   [&](std::uint32_t e) { return cost_[e] == cost_[l]; });
    type_[l] = static_cast<std::uint32_t>(same - example.begin());
    if (same == example.end()) {
      example.push_back(l);
    }
  }
  types_ = static_cast<std::uint32_t>(example.size());
  counts_.assign((cost_.size() + 1) * types_, 0);
  for (std::uint32_t l = 0; l < layers(); ++l) {
    std::copy_n(counts_.begin() + l * types_, types_, counts_.begin() + (l + 1) * types_);
    ++counts_[(l + 1) * types_ + type_[l]];
  }
}

LayerCost LayerTable::sum(LayerRange range) const {
  LayerCost total = difference(before_[range.last], before_[range.first]);
  for (std::uint32_t l = range.first; l < range.last; ++l) {
    total.work_bytes = std::max(total.work_bytes, cost_[l].work_bytes);
  }
  return total;
}

}  // namespace tapas::solver
