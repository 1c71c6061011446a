#pragma once

#include "daemon/recording/names.h"
#include "solver/model/job.h"

/// A job as it was loaded: files that it named, the catalogue and topologies need not be there when
/// it is read. All fields of a struct are named, so a new one does not compile until it is here.
namespace tapas::daemon::recording {

template <typename V, Is<solver::DeviceType> T>
void fields(V& visit, T& of) {
  auto& [name, peak_flops, memory_bytes, memory_bytes_per_s, matmul_efficiency, matmul_half_flops,
         attention_efficiency, memory_efficiency, operator_launch_s, collective_launch_s,
         collective_library] = of;
  visit({"name", "peak_flops", "memory_bytes", "memory_bytes_per_s", "matmul_efficiency",
         "matmul_half_flops", "attention_efficiency", "memory_efficiency", "operator_launch_s",
         "collective_launch_s", "collective_library"},
        name, peak_flops, memory_bytes, memory_bytes_per_s, matmul_efficiency, matmul_half_flops,
        attention_efficiency, memory_efficiency, operator_launch_s, collective_launch_s,
        collective_library);
}

template <typename V, Is<solver::ChannelSet> T>
void fields(V& visit, T& of) {
  auto& [channels, intra_bytes_per_s, inter_bytes_per_s, intra, inter, nic_latency_s] = of;
  visit({"channels", "intra_bytes_per_s", "inter_bytes_per_s", "intra", "inter", "nic_latency_s"},
        channels, intra_bytes_per_s, inter_bytes_per_s, intra, inter, nic_latency_s);
}

template <typename V, Is<solver::CommGraph> T>
void fields(V& visit, T& of) {
  auto& [ring, tree, nvls, plain_tree, generation, same_devices, amd_host] = of;
  visit({"ring", "tree", "nvls", "plain_tree", "generation", "same_devices", "amd_host"}, ring,
        tree, nvls, plain_tree, generation, same_devices, amd_host);
}

template <typename V, Is<solver::DevicePath> T>
void fields(V& visit, T& of) {
  auto& [type, bytes_per_s] = of;
  visit({"type", "bytes_per_s"}, type, bytes_per_s);
}

template <typename V, Is<solver::MeasuredCollective> T>
void fields(V& visit, T& of) {
  auto& [op, nodes, devices, bytes, seconds] = of;
  visit({"op", "nodes", "devices", "bytes", "seconds"}, op, nodes, devices, bytes, seconds);
}

template <typename V, Is<solver::CommShape> T>
void fields(V& visit, T& of) {
  auto& [per_node, inside, across] = of;
  visit({"per_node", "inside", "across"}, per_node, inside, across);
}

template <typename V, Is<solver::CommTable> T>
void fields(V& visit, T& of) {
  auto& [shapes, paths, nic_paths, measured] = of;
  visit({"shapes", "paths", "nic_paths", "measured"}, shapes, paths, nic_paths, measured);
}

template <typename V, Is<solver::NodeType> T>
void fields(V& visit, T& of) {
  auto& [name, device_type, devices, fast_link_bytes_per_s, fast_link_latency_s, nic_bytes_per_s,
         nics, topo_file, comm] = of;
  visit({"name", "device_type", "devices", "fast_link_bytes_per_s", "fast_link_latency_s",
         "nic_bytes_per_s", "nics", "topo_file", "comm"},
        name, device_type, devices, fast_link_bytes_per_s, fast_link_latency_s, nic_bytes_per_s,
        nics, topo_file, comm);
}

template <typename V, Is<solver::Node> T>
void fields(V& visit, T& of) {
  auto& [name, type, tor, pod, spare] = of;
  visit({"name", "type", "tor", "pod", "spare"}, name, type, tor, pod, spare);
}

template <typename V, Is<solver::FabricTier> T>
void fields(V& visit, T& of) {
  auto& [name, latency_s, oversubscription] = of;
  visit({"name", "latency_s", "oversubscription"}, name, latency_s, oversubscription);
}

template <typename V, Is<solver::Cluster> T>
void fields(V& visit, T& of) {
  auto& [name, device_types, node_types, nodes, tor, pod, core] = of;
  visit({"name", "device_types", "node_types", "nodes", "tor", "pod", "core"}, name, device_types,
        node_types, nodes, tor, pod, core);
}

template <typename V, Is<solver::MeasuredOp> T>
void fields(V& visit, T& of) {
  auto& [device, micro_batch_size, tp_width, forward_s, backward_s, forward_comm_s, backward_comm_s,
         param_bytes, act_bytes, work_bytes] = of;
  visit({"device", "micro_batch_size", "tp_width", "forward_s", "backward_s", "forward_comm_s",
         "backward_comm_s", "param_bytes", "act_bytes", "work_bytes"},
        device, micro_batch_size, tp_width, forward_s, backward_s, forward_comm_s, backward_comm_s,
        param_bytes, act_bytes, work_bytes);
}

template <typename V, Is<solver::OpNode> T>
void fields(V& visit, T& of) {
  auto& [id, name, kind, layer, fwd_flops, bwd_flops, param_bytes, act_bytes, work_bytes, out_bytes,
         fwd_moved_bytes, bwd_moved_bytes, measured] = of;
  visit({"id", "name", "kind", "layer", "fwd_flops", "bwd_flops", "param_bytes", "act_bytes",
         "work_bytes", "out_bytes", "fwd_moved_bytes", "bwd_moved_bytes", "measured"},
        id, name, kind, layer, fwd_flops, bwd_flops, param_bytes, act_bytes, work_bytes, out_bytes,
        fwd_moved_bytes, bwd_moved_bytes, measured);
}

template <typename V, Is<solver::OpEdge> T>
void fields(V& visit, T& of) {
  auto& [src, dst, bytes, dtype] = of;
  visit({"src", "dst", "bytes", "dtype"}, src, dst, bytes, dtype);
}

template <typename V, Is<solver::Graph> T>
void fields(V& visit, T& of) {
  auto& [name, micro_batch_size, sequence_length, hidden_size, nodes, edges] = of;
  visit({"name", "micro_batch_size", "sequence_length", "hidden_size", "nodes", "edges"}, name,
        micro_batch_size, sequence_length, hidden_size, nodes, edges);
}

template <typename V, Is<solver::Capabilities> T>
void fields(V& visit, T& of) {
  auto& [replica_splits, microbatch_counts, recompute, placement, narrower_groups] = of;
  visit({"replica_splits", "microbatch_counts", "recompute", "placement", "narrower_groups"},
        replica_splits, microbatch_counts, recompute, placement, narrower_groups);
}

template <typename V, Is<solver::Limits> T>
void fields(V& visit, T& of) {
  auto& [device_memory_bytes, memory_reserve_ratio, step_time_s, recompute_ratio] = of;
  visit({"device_memory_bytes", "memory_reserve_ratio", "step_time_s", "recompute_ratio"},
        device_memory_bytes, memory_reserve_ratio, step_time_s, recompute_ratio);
}

template <typename V, Is<solver::ObjectiveWeights> T>
void fields(V& visit, T& of) {
  auto& [memory_per_byte, communication_per_s, stage_time_per_s] = of;
  visit({"memory_per_byte", "communication_per_s", "stage_time_per_s"}, memory_per_byte,
        communication_per_s, stage_time_per_s);
}

template <typename V, Is<solver::SearchSettings> T>
void fields(V& visit, T& of) {
  auto& [model, seed, min_stages, max_stages, tp_widths, stage_widths, micro_batch_sizes,
         interleave, anneal, weights] = of;
  visit({"model", "seed", "min_stages", "max_stages", "tp_widths", "stage_widths",
         "micro_batch_sizes", "interleave", "anneal", "weights"},
        model, seed, min_stages, max_stages, tp_widths, stage_widths, micro_batch_sizes, interleave,
        anneal, weights);
}

template <typename V, Is<solver::Job> T>
void fields(V& visit, T& of) {
  auto& [name, graph, cluster, global_batch, dtype, optimizer_bytes_per_param,
         gradient_bytes_per_param, bytes_per_param, zero_stage, schedule, overlap_tp,
         overlap_gradients, limits, capabilities, search, switch_pause_s] = of;
  visit({"name", "graph", "cluster", "global_batch", "dtype", "optimizer_bytes_per_param",
         "gradient_bytes_per_param", "bytes_per_param", "zero_stage", "schedule", "overlap_tp",
         "overlap_gradients", "limits", "capabilities", "search", "switch_pause_s"},
        name, graph, cluster, global_batch, dtype, optimizer_bytes_per_param,
        gradient_bytes_per_param, bytes_per_param, zero_stage, schedule, overlap_tp,
        overlap_gradients, limits, capabilities, search, switch_pause_s);
}

}  // namespace tapas::daemon::recording
