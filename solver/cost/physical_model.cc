#include "solver/cost/physical_model.h"

#include <algorithm>
#include <unordered_map>

namespace tapas::solver {
namespace {

// A linear's backward is two products of the forward's size: for the input and for the weights.
constexpr double kBackwardKernels = 2;
// Memory passes of a memory-bound operator, in units of its output: read and write forward; input
// and gradient read, gradient written backward.
constexpr double kForwardPasses = 2;
constexpr double kBackwardPasses = 3;

double ring_all_reduce_s(double bytes, double members, const NodeType& node) {
  return 2 * (members - 1) * node.fast_link_latency_s +
         2 * (members - 1) / members * bytes / node.fast_link_bytes_per_s;
}

}  // namespace

PhysicalModel::PhysicalModel(const Job& job) : job_(job), input_bytes_(job.graph.nodes.size(), 0) {
  std::unordered_map<std::uint32_t, std::size_t> index_of;
  for (std::size_t k = 0; k < job.graph.nodes.size(); ++k) {
    index_of[job.graph.nodes[k].id] = k;
  }
  for (const OpEdge& edge : job.graph.edges) {
    double& input = input_bytes_[index_of.at(edge.dst)];
    input = std::max(input, edge.bytes);
  }
}

LayerTimes PhysicalModel::layer_times(std::uint32_t layer, const Sharding& sharding) const {
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const DeviceType& device = job_.cluster.device_types[node.device_type];
  const double width = sharding.width;
  LayerTimes times;
  const auto& nodes = job_.graph.nodes;
  const auto first =
      std::lower_bound(nodes.begin(), nodes.end(), layer,
                       [](const OpNode& op, std::uint32_t l) { return op.layer < l; });
  for (auto op = first; op != nodes.end() && op->layer == layer; ++op) {
    const double share = splits_work(op->kind, sharding) ? 1 / width : 1;
    switch (op->kind) {
      case OpKind::kColumnParallelLinear:
      case OpKind::kRowParallelLinear:
      case OpKind::kMoe:
      case OpKind::kHead: {
        // time = flops / (peak * best * flops / (flops + half)) = (flops + half) / (peak * best)
        const double rate = device.peak_flops * device.matmul_efficiency;
        if (op->fwd_flops > 0) {
          times.forward_s += (op->fwd_flops * share + device.matmul_half_flops) / rate;
        }
        if (op->bwd_flops > 0) {
          times.backward_s +=
              (op->bwd_flops * share + kBackwardKernels * device.matmul_half_flops) / rate;
        }
        break;
      }
      case OpKind::kAttention: {
        const double rate = device.peak_flops * device.attention_efficiency;
        times.forward_s += op->fwd_flops * share / rate;
        times.backward_s += op->bwd_flops * share / rate;
        break;
      }
      case OpKind::kEmbedding:
      case OpKind::kNorm:
      case OpKind::kOther: {
        const double pass = op->out_bytes * share / device.memory_bytes_per_s;
        times.forward_s += kForwardPasses * pass;
        times.backward_s += kBackwardPasses * pass;
        break;
      }
    }
    if (sharding.width > 1) {
      // Partial sums leave the row-parallel side forward and the column-parallel side backward.
      // Under sequence parallelism each all-reduce is a reduce-scatter and an all-gather of the
      // same bytes and hops.
      const bool row_side = op->kind == OpKind::kRowParallelLinear || op->kind == OpKind::kMoe ||
                            op->kind == OpKind::kEmbedding;
      const bool column_side = op->kind == OpKind::kColumnParallelLinear ||
                               op->kind == OpKind::kMoe || op->kind == OpKind::kHead;
      if (row_side) {
        times.forward_comm_s += ring_all_reduce_s(op->out_bytes, width, node);
      }
      if (column_side) {
        times.backward_comm_s += ring_all_reduce_s(
            input_bytes_[static_cast<std::size_t>(op - nodes.begin())], width, node);
      }
    }
  }
  return times;
}

Hop PhysicalModel::hop(const Link& link, const Sharding& sharding, double bytes,
                       std::uint32_t stages) const {
  // Each device of the group sends its share of the activation.
  return stages < 2 ? Hop{} : Hop{link.latency_s + bytes / sharding.width / link.bytes_per_s, 0};
}

StepTail PhysicalModel::step_tail(const Ring& ring, const Sharding& sharding) const {
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const DeviceType& device = job_.cluster.device_types[node.device_type];
  const double members = ring.members;
  const double owned = job_.zero_stage > 0 ? 1 / members : 1;  // of the optimizer state
  StepTail tail;
  // The optimizer reads and writes its state, reads gradients and writes parameters.
  tail.per_param_s =
      owned *
      (2 * job_.optimizer_bytes_per_param + job_.gradient_bytes_per_param + job_.bytes_per_param) /
      device.memory_bytes_per_s;
  if (ring.members > 1) {
    // Gradients: reduce-scatter; then all-gather of what ZeRO updated, or of the gradients.
    const double gathered =
        job_.zero_stage > 0 ? job_.bytes_per_param : job_.gradient_bytes_per_param;
    tail.fixed_s = 2 * (members - 1) * ring.latency_s;
    tail.per_param_s +=
        (members - 1) / members * (job_.gradient_bytes_per_param + gathered) / ring.bytes_per_s;
  }
  return tail;
}

}  // namespace tapas::solver
