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
};

Holding holding(OpKind kind, bool sequence_parallel) {
  switch (kind) {
    case OpKind::kNorm:
    case OpKind::kOther:
      return {false, sequence_parallel, sequence_parallel};
    case OpKind::kColumnParallelLinear:  // every device keeps the whole input
      return {true, true, sequence_parallel};
    case OpKind::kEmbedding:
    case OpKind::kMoe:
    case OpKind::kRowParallelLinear:
    case OpKind::kAttention:
    case OpKind::kHead:
      return {true, true, true};
  }
  return {};
}

}  // namespace

MemoryCheck::MemoryCheck(const Job& job) : job_(job), entering_(job.graph.layer_count(), 0) {
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
  for (const auto& [producer, use] : last_use) {
    for (std::uint32_t layer = layer_of[producer] + 1; layer <= use.first; ++layer) {
      entering_[layer] += use.second;
    }
  }
}

double MemoryCheck::state_bytes(const Plan& plan, LayerRange range) const {
  const double width = plan.tp_width[range.first];
  double params = 0;
  for (const OpNode& op : job_.graph.nodes) {
    if (op.layer >= range.first && op.layer < range.last) {
      params += op.param_bytes / job_.bytes_per_param /
                (holding(op.kind, plan.sp_width > 1).params_split ? width : 1);
    }
  }
  const double owners = job_.zero_stage > 0 ? static_cast<double>(plan.replicas()) : 1;
  return params * (job_.bytes_per_param + job_.gradient_bytes_per_param +
                   job_.optimizer_bytes_per_param / owners);
}

double MemoryCheck::stage_bytes(const Plan& plan, LayerRange range, std::uint32_t held) const {
  const double width = plan.tp_width[range.first];
  const bool sequence_parallel = plan.sp_width > 1;
  std::map<std::uint32_t, double> stash;
  double scratch = 0;
  for (const OpNode& op : job_.graph.nodes) {
    if (op.layer < range.first || op.layer >= range.last) {
      continue;
    }
    const Holding how = holding(op.kind, sequence_parallel);
    stash[op.layer] += op.act_bytes / (how.stash_split ? width : 1);
    scratch = std::max(scratch, op.work_bytes / (how.work_split ? width : 1));
  }
  double activations = 0;
  double rebuilt = 0;  // the one layer whose activations recomputation brings back at a time
  for (const auto& [layer, bytes] : stash) {
    double kept = bytes;
    if (plan.checkpoint[layer]) {
      kept = std::min(bytes, entering_[layer] / (sequence_parallel ? width : 1));
      rebuilt = std::max(rebuilt, bytes - kept);
    }
    activations += held * kept;
  }
  return state_bytes(plan, range) + activations + rebuilt + scratch;
}

}  // namespace tapas::solver
