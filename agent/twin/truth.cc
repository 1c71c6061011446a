#include "agent/twin/truth.h"

#include "agent/twin/noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace tapas::twin {

namespace {

using solver::OpKind;

// The true hardware. Chosen so that GPT-3 175B lands where published runs on A100-class clusters
// do (44 to 57 % of peak), without a look at any estimate of the solver's.
constexpr double kMatmulShare = 0.71;      // of peak, very large products
constexpr double kMatmulHalfFlops = 8e9;   // one kernel reaches half of that share
constexpr double kAttentionShare = 0.52;   // fused attention
constexpr double kMemoryShare = 0.80;      // of memory bandwidth, element-wise kernels
constexpr double kKernelGapS = 5e-6;       // between two operators
constexpr double kOptimizerBytes = 30.0;   // read and written per parameter, Adam with master
constexpr double kOptimizerFixedS = 8e-3;  // gradient norm, scaling checks, launch
constexpr double kFastLinkShare = 0.78;    // of NVLink, ring collectives
constexpr double kNicShare = 0.86;         // of the NIC, RDMA
constexpr double kSendLatencyS = 18e-6;    // point to point across nodes, beside the fabric's
constexpr double kDpExposed = 0.7;         // share of the gradient sync not hidden by backwards
constexpr double kRegroupS = 1.1;          // new communicators in a switch, every rank
constexpr double kTransferShare = 0.80;    // of the NIC, large copies of layer state
constexpr double kDeviceSpread = 0.010;    // standard deviations
constexpr double kNicSpread = 0.015;
constexpr double kStepJitter = 0.006;
constexpr double kLinkJitter = 0.03;  // of a transfer as measured, from step to step

bool is_split(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
    case OpKind::kMoe:
    case OpKind::kColumnParallelLinear:
    case OpKind::kRowParallelLinear:
    case OpKind::kAttention:
    case OpKind::kHead:
      return true;
    case OpKind::kNorm:
    case OpKind::kOther:
      return false;
  }
  return false;
}

bool is_matmul(OpKind kind) {
  return kind == OpKind::kMoe || kind == OpKind::kColumnParallelLinear ||
         kind == OpKind::kRowParallelLinear || kind == OpKind::kHead;
}

double matmul_s(double flops, double kernels, double peak) {
  if (flops <= 0) {
    return 0;
  }
  const double each = flops / kernels;
  return flops / (peak * kMatmulShare * each / (each + kMatmulHalfFlops));
}

// Compute of one operator on one device of a group `tp` wide; backward runs the input's and the
// weight's gradient as two kernels, and moves about twice the memory.
double operator_s(const solver::OpNode& op, bool backward, std::uint32_t tp, std::uint32_t sp,
                  const solver::DeviceType& device) {
  const double passes = backward ? 2 : 1;
  double seconds = kKernelGapS * passes;
  const double flops = (backward ? op.bwd_flops : op.fwd_flops) / (is_split(op.kind) ? tp : sp);
  if (is_matmul(op.kind)) {
    seconds += matmul_s(flops, passes, device.peak_flops);
  } else if (op.kind == OpKind::kAttention) {
    seconds += flops / (device.peak_flops * kAttentionShare);
  }
  if (!is_matmul(op.kind) && op.kind != OpKind::kAttention) {
    const double moved = 2 * op.out_bytes / (op.kind == OpKind::kEmbedding ? 1 : sp);
    seconds += passes * moved / (device.memory_bytes_per_s * kMemoryShare);
  }
  return seconds;
}

// Ring all-reduce inside the fast domain, or reduce-scatter and all-gather: the same volume.
CollectiveTime all_reduce(double bytes, std::uint32_t width, const solver::NodeType& type) {
  if (width < 2) {
    return {};
  }
  const double hops = 2.0 * (width - 1);
  return {hops * type.fast_link_latency_s,
          hops / width * bytes / (type.fast_link_bytes_per_s * kFastLinkShare)};
}

void add(CollectiveTime& sum, const CollectiveTime& more, double times) {
  sum.latency_s += times * more.latency_s;
  sum.transfer_s += times * more.transfer_s;
}

double all_reduce_bytes(double bytes, std::uint32_t width) {
  return width < 2 ? 0 : 2.0 * (width - 1) / width * bytes;
}

Result<void> check_position(const solver::Cluster& cluster, const solver::Position& position) {
  if (position.node.value() >= cluster.nodes.size()) {
    return fail(ErrorCode::kInvalid, "node {} is not in the cluster of {} nodes", position.node,
                cluster.nodes.size());
  }
  if (position.devices.empty()) {
    return fail(ErrorCode::kInvalid, "no devices on node {}",
                cluster.nodes[position.node.value()].name);
  }
  for (const std::uint16_t device : position.devices) {
    if (device >= cluster.type_of(position.node).devices) {
      return fail(ErrorCode::kInvalid, "node {} has no device {}",
                  cluster.nodes[position.node.value()].name, device);
    }
  }
  return {};
}

Result<void> check_splits(const std::vector<std::uint32_t>& splits, std::size_t stages,
                          std::uint32_t layers) {
  bool ok = splits.size() == stages && stages > 0 && splits[0] == 0 && splits.back() < layers;
  for (std::size_t s = 1; ok && s < splits.size(); ++s) {
    ok = splits[s - 1] < splits[s];
  }
  if (!ok) {
    return fail(ErrorCode::kInvalid, "pp_splits must cut {} layers into {} stages", layers, stages);
  }
  return {};
}

}  // namespace

Truth::Truth(const solver::Job& job, std::uint64_t seed) : job_(job), seed_(seed) {
  const solver::Cluster& cluster = job.cluster;
  for (std::uint32_t rank = 0; rank < cluster.device_count(); ++rank) {
    device_time_.push_back(1.0 + kDeviceSpread * normal(seed, Noise::kDevice, rank, 0));
  }
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
    nic_speed_.push_back(1.0 - kNicSpread * std::abs(normal(seed, Noise::kNic, node, 0)));
  }
  layers_.resize(job.graph.layer_count());
  for (const solver::OpNode& op : job.graph.nodes) {
    layers_[op.layer].push_back(&op);
  }
}

double Truth::node_bytes_per_s(NodeId node) const {
  const solver::NodeType& type = job_.cluster.type_of(node);
  return type.nic_bytes_per_s * type.nics * nic_speed_[node.value()];
}

double Truth::device_bytes_per_s(NodeId from, NodeId to, const solver::ClusterState& state) const {
  const auto share = [&](NodeId node, double factor) {
    return kNicShare * node_bytes_per_s(node) / job_.cluster.type_of(node).devices / factor;
  };
  return std::min(share(from, state.links(from).send), share(to, state.links(to).receive)) /
         state.path(from, to);
}

double Truth::link_s(const solver::Position& from, const solver::Position& to, double bytes,
                     bool sharded, const solver::ClusterState& state) const {
  // Each pair of ranks carries its share of the tensor; receivers gather it inside their node.
  const double pairs = static_cast<double>(std::min(from.devices.size(), to.devices.size()));
  const solver::NodeType& receiver = job_.cluster.type_of(to.node);
  const double fast = receiver.fast_link_bytes_per_s * kFastLinkShare / state.links(to.node).inside;
  const double gather_s = sharded ? 0 : bytes * (pairs - 1) / pairs / fast;
  if (from.node == to.node) {
    return bytes / pairs / fast + receiver.fast_link_latency_s + gather_s;
  }
  const solver::FabricTier& tier = job_.cluster.tier_between(from.node, to.node);
  const double speed = device_bytes_per_s(from.node, to.node, state) / tier.oversubscription;
  return bytes / pairs / speed + tier.latency_s + kSendLatencyS + gather_s;
}

Layout::Stage Truth::stage_of(const solver::Plan& plan, std::uint32_t replica,
                              std::uint32_t stage) const {
  Layout::Stage out;
  out.position = plan.placement[replica][stage];
  out.layers = solver::stage_layers(plan, replica, stage, job_.graph.layer_count());
  const auto tp = static_cast<std::uint32_t>(out.position.devices.size());
  const std::uint32_t sp = plan.sp_width > 1 ? tp : 1;
  const solver::NodeType& type = job_.cluster.type_of(out.position.node);
  const solver::DeviceType& device = job_.cluster.device_type_of(out.position.node);
  const double replicas = plan.replicas();
  double params = 0;
  for (std::uint32_t l = out.layers.first; l < out.layers.last; ++l) {
    double forward = 0;
    CollectiveTime reduce;
    double reduce_bytes = 0;
    for (const solver::OpNode* op : layers_[l]) {
      forward += operator_s(*op, false, tp, sp, device);
      out.backward_s += operator_s(*op, true, tp, sp, device);
      params += op->param_bytes / job_.bytes_per_param / (is_split(op->kind) ? tp : 1);
      if (op->kind == OpKind::kRowParallelLinear || op->kind == OpKind::kEmbedding) {
        add(reduce, all_reduce(op->out_bytes, tp, type), 1);
        reduce_bytes += all_reduce_bytes(op->out_bytes, tp);
      }
    }
    const double recompute = plan.checkpoint_of(replica)[l] ? 1 : 0;
    out.forward_s += forward;
    out.backward_s += recompute * forward;
    add(out.tp_forward, reduce, 1);
    add(out.tp_backward, reduce, 1 + recompute);
    out.microbatch_bytes += (2 + recompute) * reduce_bytes;
  }
  const auto cut_bytes = [&](std::uint32_t layer) { return layers_[layer].back()->out_bytes; };
  if (stage + 1 < plan.stages()) {
    out.next_bytes = cut_bytes(out.layers.last - 1);
  }
  if (stage > 0) {
    out.previous_bytes = cut_bytes(out.layers.first - 1);
  }
  out.microbatch_bytes += (out.next_bytes + out.previous_bytes) / tp;
  const double shard = job_.zero_stage > 0 ? params / replicas : params;
  out.optimizer_s =
      kOptimizerFixedS + shard * kOptimizerBytes / (device.memory_bytes_per_s * kMemoryShare);
  return out;
}

void Truth::add_gradient_sync(Layout& layout) const {
  const std::size_t replicas = layout.replicas.size();
  const double ring = static_cast<double>(replicas - 1) / static_cast<double>(replicas);
  // ZeRO 1 scatters gradients and gathers parameters; without it gradients go both ways.
  const double per_param = job_.zero_stage > 0
                               ? job_.gradient_bytes_per_param + job_.bytes_per_param
                               : 2 * job_.gradient_bytes_per_param;
  for (auto& stages : layout.replicas) {
    for (Layout::Stage& stage : stages) {
      const double tp = static_cast<double>(stage.position.devices.size());
      for (std::uint32_t l = stage.layers.first; l < stage.layers.last; ++l) {
        double params = 0;
        for (const solver::OpNode* op : layers_[l]) {
          params += op->param_bytes / job_.bytes_per_param / (is_split(op->kind) ? tp : 1);
        }
        const double bytes = ring * params * per_param;
        stage.sync_bytes.push_back(bytes);
        stage.step_bytes += bytes;
      }
    }
  }
}

// Each layer's gradients go around a ring of the replicas' owners of that layer, which may sit in
// different stages when replicas are cut differently; the slowest hop sets the pace.
std::vector<double> Truth::ring_bytes_per_s(const Layout& layout,
                                            const solver::ClusterState& state) const {
  const std::size_t replicas = layout.replicas.size();
  std::vector<std::vector<NodeId>> owners(layers_.size());
  for (const auto& stages : layout.replicas) {
    for (const Layout::Stage& stage : stages) {
      for (std::uint32_t l = stage.layers.first; l < stage.layers.last; ++l) {
        owners[l].push_back(stage.position.node);
      }
    }
  }
  std::vector<double> pace(layers_.size(), std::numeric_limits<double>::infinity());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t r = 0; replicas > 1 && r < replicas; ++r) {
      const NodeId from = owners[l][r];
      const NodeId to = owners[l][(r + 1) % replicas];
      const double hop = from == to ? job_.cluster.type_of(from).fast_link_bytes_per_s *
                                          kFastLinkShare / state.links(from).inside
                                    : device_bytes_per_s(from, to, state);
      pace[l] = std::min(pace[l], hop);
    }
  }
  return pace;
}

std::vector<std::vector<StageLinks>> Truth::links(const Layout& layout,
                                                  const solver::ClusterState& state) const {
  const std::vector<double> ring = ring_bytes_per_s(layout, state);
  const bool sharded = layout.plan.sp_width > 1;
  std::vector<std::vector<StageLinks>> out;
  for (const auto& stages : layout.replicas) {
    auto& row = out.emplace_back();
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const Layout::Stage& stage = stages[s];
      const double inside = state.links(stage.position.node).inside;
      const auto collective_s = [&](const CollectiveTime& time) {
        return time.latency_s + time.transfer_s * inside;
      };
      // A single device has no group to shard over.
      const bool shards = sharded && stage.position.devices.size() > 1;
      StageLinks& link = row.emplace_back();
      link.tp_forward_s = collective_s(stage.tp_forward);
      link.tp_backward_s = collective_s(stage.tp_backward);
      if (s + 1 < stages.size()) {
        link.send_forward_s =
            link_s(stage.position, stages[s + 1].position, stage.next_bytes, shards, state);
      }
      if (s > 0) {
        link.send_backward_s =
            link_s(stage.position, stages[s - 1].position, stage.previous_bytes, shards, state);
      }
      for (std::uint32_t l = stage.layers.first; l < stage.layers.last; ++l) {
        link.dp_s += kDpExposed * stage.sync_bytes[l - stage.layers.first] / ring[l];
      }
    }
  }
  return out;
}

Result<Layout> Truth::lay_out(const solver::Plan& plan) const {
  const std::uint32_t layers = job_.graph.layer_count();
  if (plan.schedule == solver::Schedule::kInterleaved) {
    return fail(ErrorCode::kInvalid, "the twin runs 1f1b and gpipe schedules, not interleaved");
  }
  if (plan.micro_batch_size != 0 && plan.micro_batch_size != job_.graph.micro_batch_size) {
    return fail(ErrorCode::kInvalid,
                "the plan takes {} samples per microbatch, the twin's job {}: give the twin a job "
                "with that micro_batch_size",
                plan.micro_batch_size, job_.graph.micro_batch_size);
  }
  if (plan.replicas() == 0 || plan.microbatches.size() != plan.replicas() ||
      plan.checkpoint.size() != layers) {
    return fail(ErrorCode::kInvalid,
                "plan has {} replicas, {} microbatch counts and {} checkpoint flags for {} layers",
                plan.replicas(), plan.microbatches.size(), plan.checkpoint.size(), layers);
  }
  for (const auto& flags : plan.replica_checkpoint) {
    if (!flags.empty() && flags.size() != layers) {
      return fail(ErrorCode::kInvalid, "a replica has {} checkpoint flags for {} layers",
                  flags.size(), layers);
    }
  }
  Layout layout{plan, {}};
  std::vector<bool> taken(job_.cluster.device_count());
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const std::string where = fmt::format("replica {}", r);
    if (auto ok = check_splits(plan.splits_of(r), plan.stages(), layers); !ok) {
      return fail_in(where, ok.error());
    }
    if (plan.placement[r].size() != plan.stages() || plan.microbatches[r] == 0) {
      return fail(ErrorCode::kInvalid, "{}: {} positions for {} stages, {} microbatches", where,
                  plan.placement[r].size(), plan.stages(), plan.microbatches[r]);
    }
    for (const solver::Position& position : plan.placement[r]) {
      if (auto ok = check_position(job_.cluster, position); !ok) {
        return fail_in(where, ok.error());
      }
      for (const std::uint16_t device : position.devices) {
        const std::uint32_t rank = job_.cluster.rank_of(position.node, device).value();
        if (taken[rank]) {
          return fail(ErrorCode::kInvalid, "{}: device {} of node {} has two positions", where,
                      device, job_.cluster.nodes[position.node.value()].name);
        }
        taken[rank] = true;
      }
    }
    auto& stages = layout.replicas.emplace_back();
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      stages.push_back(stage_of(plan, r, s));
    }
  }
  add_gradient_sync(layout);
  return layout;
}

StepTruth Truth::step(const Layout& layout, std::uint64_t step, const solver::ClusterState& state,
                      double overhead, const std::vector<double>& input_s) const {
  StepTruth out;
  const std::vector<std::vector<StageLinks>> all_links = links(layout, state);
  const solver::Cluster& cluster = job_.cluster;
  const std::uint32_t stage_count = layout.plan.stages();
  // Filled replica by replica; the waits follow when the whole step is known.
  std::vector<std::vector<double>> finish_s;
  std::vector<double> gradients_ready_s(layers_.size());
  double optimizer_s = 0;

  for (std::size_t r = 0; r < layout.replicas.size(); ++r) {
    const std::uint32_t microbatches = layout.plan.microbatches[r];
    std::vector<StageTimes> times;
    const std::size_t first_rank = out.ranks.size();
    for (std::uint32_t s = 0; s < stage_count; ++s) {
      const Layout::Stage& stage = layout.replicas[r][s];
      const StageLinks& link = all_links[r][s];
      // The members of a TP group meet in every layer: all go at the pace of the slowest.
      double pace = 0;
      double latest_input_s = 0;
      for (const std::uint16_t device : stage.position.devices) {
        RankStep rank;
        rank.rank = cluster.rank_of(stage.position.node, device);
        rank.node = stage.position.node;
        rank.microbatches = microbatches;
        const std::uint32_t id = rank.rank.value();
        const double speed = device_time_[id] * state.slowdown(rank.rank) *
                             (1.0 + kStepJitter * normal(seed_, Noise::kStep, id, step));
        pace = std::max(pace, speed * overhead);
        rank.forward_s = microbatches * stage.forward_s * speed * overhead;
        rank.backward_s = microbatches * stage.backward_s * speed * overhead;
        rank.optimizer_s = stage.optimizer_s * speed;
        optimizer_s = std::max(optimizer_s, rank.optimizer_s);
        rank.pp_transfer_s = microbatches * (link.send_forward_s + link.send_backward_s);
        rank.bytes_sent = microbatches * stage.microbatch_bytes + stage.step_bytes;
        rank.input_wait_s = input_s.empty() ? 0 : input_s[id];
        latest_input_s = std::max(latest_input_s, rank.input_wait_s);
        out.ranks.push_back(rank);
      }
      const auto send = [&](std::uint32_t to_stage, double bytes, double seconds) {
        const solver::Position& from = stage.position;
        const solver::Position& to = layout.replicas[r][to_stage].position;
        if (from.node != to.node) {
          const RankId rank = cluster.rank_of(from.node, from.devices.front());
          const RankId peer = cluster.rank_of(to.node, to.devices.front());
          const double jitter =
              normal(seed_, Noise::kLink, rank.value(), 2 * step + (to_stage > s));
          out.links.push_back({rank, peer, microbatches * bytes,
                               microbatches * seconds * std::max(0.5, 1 + kLinkJitter * jitter)});
        }
      };
      if (s + 1 < stage_count) {
        send(s + 1, stage.next_bytes, link.send_forward_s);
      }
      if (s > 0) {
        send(s - 1, stage.previous_bytes, link.send_backward_s);
      }
      times.push_back({stage.forward_s * pace + link.tp_forward_s,
                       stage.backward_s * pace + link.tp_backward_s, link.send_forward_s,
                       link.send_backward_s, latest_input_s});
    }
    const std::vector<double> finish = run_pipeline(layout.plan.schedule, times, microbatches);
    out.replica_s.push_back(*std::max_element(finish.begin(), finish.end()));

    std::size_t index = first_rank;
    for (std::uint32_t s = 0; s < stage_count; ++s) {
      const Layout::Stage& stage = layout.replicas[r][s];
      const double computing = microbatches * (times[s].forward_s + times[s].backward_s);
      for (std::size_t member = 0; member < stage.position.devices.size(); ++member, ++index) {
        RankStep& rank = out.ranks[index];
        rank.tp_collective_s = std::max(0.0, computing - rank.forward_s - rank.backward_s) +
                               times[s].input_s - rank.input_wait_s;
        rank.pp_wait_s =
            std::max(0.0, finish[s] - times[s].input_s - microbatches * times[s].busy_s());
      }
      for (std::uint32_t l = stage.layers.first; l < stage.layers.last; ++l) {
        gradients_ready_s[l] = std::max(gradients_ready_s[l], finish[s]);
      }
    }
    finish_s.push_back(finish);
  }

  double synced_s = 0;
  for (std::size_t r = 0; r < layout.replicas.size(); ++r) {
    for (std::uint32_t s = 0; s < stage_count; ++s) {
      const Layout::Stage& stage = layout.replicas[r][s];
      double ready = 0;
      for (std::uint32_t l = stage.layers.first; l < stage.layers.last; ++l) {
        ready = std::max(ready, gradients_ready_s[l]);
      }
      synced_s = std::max(synced_s, ready + all_links[r][s].dp_s);
    }
  }
  out.wall_s = synced_s + optimizer_s;

  std::size_t index = 0;
  for (std::size_t r = 0; r < layout.replicas.size(); ++r) {
    for (std::uint32_t s = 0; s < stage_count; ++s) {
      for (std::size_t member = 0; member < layout.replicas[r][s].position.devices.size();
           ++member, ++index) {
        RankStep& rank = out.ranks[index];
        rank.dp_collective_s = out.wall_s - finish_s[r][s] - rank.optimizer_s;
      }
    }
  }
  return out;
}

Transfer Truth::transfer(const solver::Plan& before, const solver::Plan& after,
                         const solver::ClusterState& state) const {
  const solver::Cluster& cluster = job_.cluster;
  const std::size_t nodes = cluster.nodes.size();
  Transfer out;
  out.node_s.assign(nodes, 0);
  out.device_bytes.assign(cluster.device_count(), 0);
  for (const solver::Plan* plan : {&before, &after}) {
    for (const auto& stages : plan->placement) {
      for (const solver::Position& position : stages) {
        out.node_s[position.node.value()] = kRegroupS;
      }
    }
  }
  const std::vector<solver::LayerMove> moves = solver::moves_between(job_, before, after);
  std::vector<double> leaves(nodes, 0);
  std::vector<double> arrives(nodes, 0);
  std::map<std::pair<NodeId, NodeId>, double> between;
  for (const solver::LayerMove& move : moves) {
    out.bytes += move.bytes;
    for (const std::uint16_t device : move.to.devices) {
      out.device_bytes[cluster.rank_of(move.to.node, device).value()] +=
          move.bytes / static_cast<double>(move.to.devices.size());
    }
    if (move.from.node != move.to.node) {
      leaves[move.from.node.value()] += move.bytes;
      arrives[move.to.node.value()] += move.bytes;
      between[{move.from.node, move.to.node}] += move.bytes;
    }
  }
  // A receiver is done when its own NICs, those of its slowest donor and the way between them have
  // moved everything.
  for (const solver::LayerMove& move : moves) {
    const NodeId from = move.from.node;
    const std::size_t to = move.to.node.value();
    double seconds = 0;
    if (from == move.to.node) {
      seconds = move.bytes / static_cast<double>(move.to.devices.size()) /
                (cluster.type_of(from).fast_link_bytes_per_s * kFastLinkShare) *
                state.links(from).inside;
    } else {
      const double receive_s = state.links(move.to.node).receive / node_bytes_per_s(move.to.node);
      const double send_s = state.links(from).send / node_bytes_per_s(from);
      const double slow = std::max({arrives[to] * receive_s, leaves[from.value()] * send_s,
                                    between[{from, move.to.node}] * std::max(receive_s, send_s) *
                                        state.path(from, move.to.node)});
      seconds = slow / kTransferShare * cluster.tier_between(from, move.to.node).oversubscription;
    }
    out.node_s[to] = std::max(out.node_s[to], kRegroupS + seconds);
  }
  return out;
}

}  // namespace tapas::twin
