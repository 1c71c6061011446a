#include "solver/check/check_memory.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tapas::solver {
namespace {

struct Holding {
  bool params_split = false;
  bool work_split = false;
  bool stash_split = false;
  bool meets_whole_input = false;
};

Holding holding(OpKind kind, bool sequence_parallel) {
  switch (kind) {
    case OpKind::kNorm:
    case OpKind::kOther:
      return {false, sequence_parallel, sequence_parallel, false};
    case OpKind::kColumnParallelLinear:  // every device keeps the whole input
      return {true, true, sequence_parallel, true};
    case OpKind::kHead:
      return {true, true, true, true};
    case OpKind::kEmbedding:
    case OpKind::kMoe:
    case OpKind::kRowParallelLinear:
    case OpKind::kAttention:
      return {true, true, true, false};
  }
  return {};
}

}  // namespace

MemoryCheck::MemoryCheck(const Job& job)
    : job_(job), entering_(job.graph.layer_count(), 0), fed_(job.graph.nodes.size(), 0) {
  std::map<std::uint32_t, std::uint32_t> layer_of;
  for (const OpNode& op : job.graph.nodes) {
    layer_of[op.id] = op.layer;
  }
  // A tensor enters each layer behind its producer up to its last use, once.
  std::map<std::uint32_t, std::pair<std::uint32_t, double>> last_use;
  for (const OpEdge& edge : job.graph.edges) {
    auto& [layer, bytes] = last_use[edge.src];
    layer = std::max(layer, layer_of[edge.dst]);
    bytes = std::max(bytes, edge.bytes);
  }
  std::map<std::uint32_t, double> largest_input;
  for (const OpEdge& edge : job.graph.edges) {
    double& bytes = largest_input[edge.dst];
    bytes = std::max(bytes, edge.bytes);
  }
  for (std::size_t k = 0; k < fed_.size(); ++k) {
    fed_[k] = largest_input[job.graph.nodes[k].id];
  }
  for (const auto& [producer, use] : last_use) {
    for (std::uint32_t layer = layer_of[producer] + 1; layer <= use.first; ++layer) {
      entering_[layer] += use.second;
    }
  }
}

MemoryCheck::Bytes MemoryCheck::of_operator(const Position& position, bool sequence_parallel,
                                            std::size_t index) const {
  const OpNode& op = job_.graph.nodes[index];
  const auto width = static_cast<double>(position.devices.size());
  const Holding how = holding(op.kind, sequence_parallel);
  Bytes bytes;
  bytes.params = how.params_split ? op.param_bytes / width : op.param_bytes;
  bytes.stash = how.stash_split ? op.act_bytes / width : op.act_bytes;
  bytes.scratch = how.work_split ? op.work_bytes / width : op.work_bytes;
  if (how.meets_whole_input) {  // and gathers it first when it is kept in parts
    bytes.scratch += fed_[index] * (sequence_parallel && width > 1 ? 2 : 1);
  }
  const DeviceType& device = job_.cluster.device_type_of(position.node);
  for (const MeasuredOp& entry : op.measured) {
    if (entry.device == device.name && entry.tp_width == position.devices.size() &&
        entry.micro_batch_size == job_.graph.micro_batch_size) {
      bytes.params = entry.param_bytes.value_or(bytes.params);
      bytes.stash = entry.act_bytes.value_or(bytes.stash);
      bytes.scratch = entry.work_bytes.value_or(bytes.scratch);
      break;
    }
  }
  return bytes;
}

std::pair<std::size_t, std::size_t> MemoryCheck::nodes_in(LayerRange range) const {
  const auto& nodes = job_.graph.nodes;
  const auto before = [](const OpNode& op, std::uint32_t layer) { return op.layer < layer; };
  const auto first = std::lower_bound(nodes.begin(), nodes.end(), range.first, before);
  const auto last = std::lower_bound(first, nodes.end(), range.last, before);
  return {static_cast<std::size_t>(first - nodes.begin()),
          static_cast<std::size_t>(last - nodes.begin())};
}

double MemoryCheck::params(const Position& position, LayerRange range) const {
  double params = 0;
  const auto [first, last] = nodes_in(range);
  for (std::size_t k = first; k < last; ++k) {
    params += of_operator(position, false, k).params / job_.bytes_per_param;
  }
  return params;
}

double MemoryCheck::state_bytes(const Plan& plan, const Position& position,
                                LayerRange range) const {
  const double owners = job_.zero_stage > 0 ? static_cast<double>(plan.replicas()) : 1;
  return params(position, range) * (job_.bytes_per_param + job_.gradient_bytes_per_param +
                                    job_.optimizer_bytes_per_param / owners);
}

double MemoryCheck::stage_bytes(const Plan& plan, const Position& position,
                                const std::vector<bool>& recomputed, LayerRange range,
                                std::uint32_t held) const {
  struct Layer {
    double stash = 0;
    double gradients = 0;
    bool head = false;
  };
  const bool sequence_parallel = plan.sp_width > 1;
  std::map<std::uint32_t, Layer> stage;
  double scratch = 0;
  const auto [first, last] = nodes_in(range);
  for (std::size_t k = first; k < last; ++k) {
    const OpNode& op = job_.graph.nodes[k];
    const Bytes bytes = of_operator(position, sequence_parallel, k);
    Layer& layer = stage[op.layer];
    layer.stash += bytes.stash;
    layer.gradients += op.kind == OpKind::kMoe ? 0 : bytes.params;
    layer.head = layer.head || op.kind == OpKind::kHead;
    scratch = std::max(scratch, bytes.scratch);
  }
  double activations = 0;
  double rebuilt = 0;    // the one layer whose activations recomputation brings back at a time
  double gradients = 0;  // not summed up yet: of one layer, and of the heads
  double heads = 0;
  const auto width = static_cast<double>(position.devices.size());
  for (const auto& [index, layer] : stage) {
    double kept = layer.stash;
    if (recomputed[index]) {
      kept = std::min(kept, entering_[index] / (sequence_parallel ? width : 1));
      rebuilt = std::max(rebuilt, layer.stash - kept);
    }
    activations += held * kept;
    if (layer.head) {
      heads += layer.gradients;
    } else {
      gradients = std::max(gradients, layer.gradients);
    }
  }
  return state_bytes(plan, position, range) + activations + rebuilt + scratch + gradients + heads;
}

}  // namespace tapas::solver
