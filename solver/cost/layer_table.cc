#include "solver/cost/layer_table.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
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
          cost.work_bytes, cost.gradient_bytes, cost.forward_flops, cost.flops}) {
      seed = seed * 0x9E3779B97F4A7C15U + std::hash<double>()(value);
    }
    return seed;
  }
};

/// What one device holds of an operator.
struct OpBytes {
  double params = 0;
  double stash = 0;
  double scratch = 0;
};

OpBytes op_bytes(const OpNode& op, const Sharding& sharding, double input_bytes,
                 const MeasuredOp* measured) {
  const double width = sharding.width;
  OpBytes bytes{op.param_bytes / (splits_params(op.kind) ? width : 1),
                op.act_bytes / (splits_stash(op.kind, sharding) ? width : 1),
                op.work_bytes / (splits_work(op.kind, sharding) ? width : 1)};
  if (op.kind == OpKind::kColumnParallelLinear || op.kind == OpKind::kHead) {
    // The gradient of the input is whole before it is reduced, and so is an input that sequence
    // parallelism stashed in parts.
    bytes.scratch += sharding.sequence_parallel && width > 1 ? 2 * input_bytes : input_bytes;
  }
  if (measured != nullptr) {
    bytes = {measured->param_bytes.value_or(bytes.params),
             measured->act_bytes.value_or(bytes.stash),
             measured->work_bytes.value_or(bytes.scratch)};
  }
  return bytes;
}

}  // namespace

std::vector<double> cut_bytes(const Graph& graph) {
  // For each producer the farthest layer that needs its output.
  struct Reach {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    double bytes = 0;
  };
  std::vector<Reach> reach;
  reach.reserve(graph.nodes.size());
  for (const OpNode& op : graph.nodes) {
    reach.push_back({op.layer, op.layer, 0});
  }
  const NodePlaces places(graph);
  for (const OpEdge& edge : graph.edges) {
    Reach& r = reach[places[edge.src]];
    r.to = std::max(r.to, reach[places[edge.dst]].from);
    r.bytes = std::max(r.bytes, edge.bytes);
  }
  std::vector<double> bytes(graph.layer_count() + 1, 0);
  for (const Reach& r : reach) {
    for (std::uint32_t cut = r.from + 1; cut <= r.to; ++cut) {
      bytes[cut] += r.bytes;
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
  const std::string& device =
      job.cluster.device_types[job.cluster.node_types[sharding.node_type].device_type].name;
  const std::vector<OpNode>& nodes = job.graph.nodes;
  const NodePlaces places(job.graph);
  std::vector<double> input_bytes(nodes.size(), 0);
  for (const OpEdge& edge : job.graph.edges) {
    double& input = input_bytes[places[edge.dst]];
    input = std::max(input, edge.bytes);
  }
  std::vector<double> scratch(cost_.size(), 0);
  std::vector<bool> head(cost_.size(), false);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const OpNode& op = nodes[k];
    LayerCost& cost = cost_[op.layer];
    const OpBytes bytes =
        op_bytes(op, sharding, input_bytes[k],
                 find_measured(op, device, job.graph.micro_batch_size, sharding.width));
    cost.params += bytes.params / job.bytes_per_param;
    cost.stash_bytes += bytes.stash;
    cost.gradient_bytes += op.kind == OpKind::kMoe ? 0 : bytes.params;
    scratch[op.layer] = std::max(scratch[op.layer], bytes.scratch);
    head[op.layer] = head[op.layer] || op.kind == OpKind::kHead;
    cost.forward_flops += op.fwd_flops;
    cost.flops += op.fwd_flops + op.bwd_flops;
    if (op.kind == OpKind::kRowParallelLinear || op.kind == OpKind::kMoe ||
        op.kind == OpKind::kEmbedding) {
      cost.wire_forward_bytes += wire * op.out_bytes;
    }
    if (op.kind == OpKind::kColumnParallelLinear || op.kind == OpKind::kMoe ||
        op.kind == OpKind::kHead) {
      cost.wire_backward_bytes += wire * input_bytes[k];
    }
  }
  const double input_share = sharding.sequence_parallel ? 1 / width : 1;
  std::vector<double> body_gradients(cost_.size(), 0);
  head_gradients_.assign(cost_.size() + 1, 0);
  before_.resize(cost_.size() + 1);
  for (std::uint32_t l = 0; l < layers(); ++l) {
    LayerCost& cost = cost_[l];
    cost.times = model.layer_times(l, sharding);
    cost.input_bytes = std::min(cut_bytes_[l] * input_share, cost.stash_bytes);
    cost.work_bytes = scratch[l] + cost.gradient_bytes;
    body_gradients[l] = head[l] ? 0 : cost.gradient_bytes;
    head_gradients_[l + 1] = head_gradients_[l] + (head[l] ? cost.gradient_bytes : 0);
    before_[l + 1] = before_[l];
    add(before_[l + 1], cost);
  }
  scratch_ = RangeMax(std::move(scratch));
  body_gradients_ = RangeMax(std::move(body_gradients));
  index_types();
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

LayerTable::RangeMax::RangeMax(std::vector<double> values) {
  const std::size_t n = values.size();
  of_.push_back(std::move(values));
  for (std::size_t half = 1; 2 * half <= n; half *= 2) {
    const std::vector<double>& halves = of_.back();
    std::vector<double> whole(n - 2 * half + 1);
    for (std::size_t l = 0; l < whole.size(); ++l) {
      whole[l] = std::max(halves[l], halves[l + half]);
    }
    of_.push_back(std::move(whole));
  }
}

double LayerTable::RangeMax::operator()(LayerRange range) const {
  const std::uint32_t n = range.last - range.first;
  if (n == 0) {
    return 0;
  }
  const auto k = static_cast<std::uint32_t>(std::bit_width(n)) - 1;
  return std::max(of_[k][range.first], of_[k][range.last - (1U << k)]);
}

std::uint32_t LayerTable::count(std::uint32_t type, LayerRange range) const {
  const auto begin = by_type_.begin() + type_begin_[type];
  const auto end = by_type_.begin() + type_begin_[type + 1];
  const auto first = std::lower_bound(begin, end, range.first);
  return static_cast<std::uint32_t>(std::lower_bound(first, end, range.last) - first);
}

LayerCost LayerTable::sum(LayerRange range) const {
  LayerCost total = difference(before_[range.last], before_[range.first]);
  total.gradient_bytes =
      body_gradients_(range) + head_gradients_[range.last] - head_gradients_[range.first];
  total.work_bytes = scratch_(range) + total.gradient_bytes;
  return total;
}

}  // namespace tapas::solver
