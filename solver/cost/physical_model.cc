#include "solver/cost/physical_model.h"

#include "solver/cost/collectives.h"

#include <algorithm>
#include <cstddef>

namespace tapas::solver {
namespace {

// A linear's backward is two products of the forward's size: for the input and for the weights.
constexpr double kBackwardKernels = 2;
// Memory passes of a memory-bound operator, in units of its output: read and write forward; input
// and gradient read, gradient written backward.
constexpr double kForwardPasses = 2;
constexpr double kBackwardPasses = 3;

bool is_matrix_product(OpKind kind) {
  return kind == OpKind::kColumnParallelLinear || kind == OpKind::kRowParallelLinear ||
         kind == OpKind::kMoe || kind == OpKind::kHead;
}

/// Partial sums leave the row-parallel side forward and the column-parallel side backward.
bool reduces_forward(OpKind kind) {
  return kind == OpKind::kRowParallelLinear || kind == OpKind::kMoe || kind == OpKind::kEmbedding;
}
bool reduces_backward(OpKind kind) {
  return kind == OpKind::kColumnParallelLinear || kind == OpKind::kMoe || kind == OpKind::kHead;
}

/// One device's compute of one operator that was not measured.
struct Compute {
  double forward_s = 0;
  double backward_s = 0;
};

Compute compute_of(const OpNode& op, const DeviceType& device, double share) {
  Compute time;
  const bool matmul =
      is_matrix_product(op.kind) || (op.kind != OpKind::kAttention && op.fwd_flops > 0);
  if (matmul) {
    // time = flops / (peak * best * flops / (flops + half)) = (flops + half) / (peak * best)
    const double rate = device.peak_flops * device.matmul_efficiency;
    const double half = device.matmul_half_flops;
    time.forward_s = op.fwd_flops > 0 ? (op.fwd_flops * share + half) / rate : 0;
    time.backward_s =
        op.bwd_flops > 0 ? (op.bwd_flops * share + kBackwardKernels * half) / rate : 0;
  } else if (op.kind == OpKind::kAttention) {
    const double rate = device.peak_flops * device.attention_efficiency;
    time = {op.fwd_flops * share / rate, op.bwd_flops * share / rate};
  }
  const bool by_kind = !matmul && op.kind != OpKind::kAttention;
  const auto moved = [&](double given, double passes) {
    return given > 0 || !by_kind ? given : passes * op.out_bytes;
  };
  const double memory = device.memory_bytes_per_s * device.memory_efficiency;
  time.forward_s += moved(op.fwd_moved_bytes, kForwardPasses) * share / memory;
  time.backward_s += moved(op.bwd_moved_bytes, kBackwardPasses) * share / memory;
  return time;
}

}  // namespace

PhysicalModel::PhysicalModel(const Job& job) : job_(job), input_bytes_(job.graph.nodes.size(), 0) {
  const NodePlaces places(job.graph);
  for (const OpEdge& edge : job.graph.edges) {
    double& input = input_bytes_[places[edge.dst]];
    input = std::max(input, edge.bytes);
  }
  for (const NodeType& type : job.cluster.node_types) {
    comm_.push_back(comm_table(type));
  }
}

double PhysicalModel::reduce_s(double bytes, const Sharding& sharding) const {
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const double launch = job_.cluster.device_types[node.device_type].collective_launch_s;
  const CommTable& comm = comm_[sharding.node_type];
  const GroupShape group{1, sharding.width};
  if (!sharding.sequence_parallel) {
    return collective_time_s(comm, Collective::kAllReduce, bytes, group) + launch;
  }
  const double seconds = collective_time_s(comm, Collective::kReduceScatter, bytes, group) +
                         collective_time_s(comm, Collective::kAllGather, bytes, group) + 2 * launch;
  // Cut into `width` pieces, all but one travel while the matrix product works on another.
  return job_.overlap_tp ? seconds / sharding.width : seconds;
}

LayerTimes PhysicalModel::layer_times(std::uint32_t layer, const Sharding& sharding) const {
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const DeviceType& device = job_.cluster.device_types[node.device_type];
  const double width = sharding.width;
  LayerTimes times;
  Compute measured;  // nothing is added to what was measured
  double launch_s = 0;
  const auto& nodes = job_.graph.nodes;
  const auto first =
      std::lower_bound(nodes.begin(), nodes.end(), layer,
                       [](const OpNode& op, std::uint32_t l) { return op.layer < l; });
  for (auto op = first; op != nodes.end() && op->layer == layer; ++op) {
    const MeasuredOp* known =
        find_measured(*op, device.name, job_.graph.micro_batch_size, sharding.width);
    if (known != nullptr) {
      measured.forward_s += known->forward_s;
      measured.backward_s += known->backward_s;
    } else {
      const Compute time = compute_of(*op, device, splits_work(op->kind, sharding) ? 1 / width : 1);
      times.forward_s += time.forward_s;
      times.backward_s += time.backward_s;
      launch_s += device.operator_launch_s;
    }
    if (known != nullptr && known->forward_comm_s) {
      times.forward_comm_s += *known->forward_comm_s;
    } else if (sharding.width > 1 && reduces_forward(op->kind)) {
      times.forward_comm_s += reduce_s(op->out_bytes, sharding);
    }
    if (known != nullptr && known->backward_comm_s) {
      times.backward_comm_s += *known->backward_comm_s;
    } else if (sharding.width > 1 && reduces_backward(op->kind)) {
      times.backward_comm_s +=
          reduce_s(input_bytes_[static_cast<std::size_t>(op - nodes.begin())], sharding);
    }
  }
  // The host launches ahead of the device: whichever takes longer sets the pace.
  times.forward_s = std::max(times.forward_s, launch_s - times.forward_comm_s) + measured.forward_s;
  times.backward_s =
      std::max(times.backward_s, launch_s - times.backward_comm_s) + measured.backward_s;
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
  const bool shared = job_.zero_stage > 0;  // replicas share the optimizer state
  StepTail tail;
  // The optimizer reads and writes its state, reads gradients and writes parameters.
  tail.update_per_param_s =
      (shared ? 1 / members : 1) *
      (2 * job_.optimizer_bytes_per_param + job_.gradient_bytes_per_param + job_.bytes_per_param) /
      device.memory_bytes_per_s;
  if (ring.members > 1) {
    // Gradients are reduce-scattered, and gathered too unless it is the updated parameters that
    // each replica needs from the others.
    const double turn_s = (members - 1) * ring.latency_s;
    const double turn_per_byte_s = (members - 1) / members / ring.bytes_per_s;
    const double turns = shared ? 1 : 2;
    tail.fixed_s = turns * turn_s;
    tail.per_param_s = turns * turn_per_byte_s * job_.gradient_bytes_per_param;
    if (shared && !job_.overlap_gradients) {  // else behind the next step's first forwards
      tail.update_fixed_s = turn_s;
      tail.update_per_param_s += turn_per_byte_s * job_.bytes_per_param;
    }
  }
  return tail;
}

}  // namespace tapas::solver
