#include "solver/check/check_memory.h"

#include <algorithm>

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
  const std::vector<OpNode>& nodes = job.graph.nodes;
  first_node_.reserve(entering_.size() + 1);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    first_node_.resize(nodes[k].layer + std::size_t{1}, k);
  }
  first_node_.push_back(nodes.size());
  // A tensor enters each layer behind its producer up to its last use, once.
  struct Use {
    std::uint32_t last = 0;
    double bytes = 0;
  };
  std::vector<Use> uses(nodes.size());
  const NodePlaces places(job.graph);
  for (const OpEdge& edge : job.graph.edges) {
    const std::size_t taker = places[edge.dst];
    Use& use = uses[places[edge.src]];
    use.last = std::max(use.last, nodes[taker].layer);
    use.bytes = std::max(use.bytes, edge.bytes);
    fed_[taker] = std::max(fed_[taker], edge.bytes);
  }
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    for (std::uint32_t layer = nodes[k].layer + 1; layer <= uses[k].last; ++layer) {
      entering_[layer] += uses[k].bytes;
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

double MemoryCheck::params(const Position& position, LayerRange range) const {
  double params = 0;
  for (std::size_t k = first_node_[range.first]; k < first_node_[range.last]; ++k) {
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
  std::vector<Layer> stage(range.last - range.first);
  double scratch = 0;
  for (std::size_t k = first_node_[range.first]; k < first_node_[range.last]; ++k) {
    const OpNode& op = job_.graph.nodes[k];
    const Bytes bytes = of_operator(position, sequence_parallel, k);
    Layer& layer = stage[op.layer - range.first];
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
  for (std::uint32_t index = range.first; index < range.last; ++index) {
    const Layer& layer = stage[index - range.first];
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
