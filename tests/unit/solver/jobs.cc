#include "jobs.h"

#include "solver/model/decoder.h"

#include <fmt/format.h>

#include <utility>

namespace tapas::solver::testing {
namespace {

Cluster a800_cluster(std::uint32_t nodes, std::uint32_t devices) {
  Cluster cluster;
  cluster.name = "a800";
  cluster.device_types.push_back({.name = "A800-SXM4-80GB",
                                  .peak_flops = 312e12,
                                  .memory_bytes = 80e9,
                                  .memory_bytes_per_s = 2.039e12,
                                  .matmul_efficiency = 0.72,
                                  .matmul_half_flops = 3e10,
                                  .attention_efficiency = 0.45,
                                  .collective_library = "nccl"});
  cluster.node_types.push_back({.name = "a800x8",
                                .device_type = 0,
                                .devices = devices,
                                .fast_link_bytes_per_s = 160e9,
                                .fast_link_latency_s = 2e-6,
                                .nic_bytes_per_s = 25e9,
                                .nics = (devices + 1) / 2,
                                .topo_file = ""});
  for (std::uint32_t n = 0; n < nodes; ++n) {
    cluster.nodes.push_back({.name = fmt::format("node{:03}", n),
                             .type = 0,
                             .tor = fmt::format("tor{:02}", n / 16),
                             .pod = fmt::format("pod{}", n / 64),
                             .spare = false});
  }
  cluster.tor = {"tor", 6e-6, 1};
  cluster.pod = {"pod", 9e-6, 1};
  cluster.core = {"core", 12e-6, 2};
  return cluster;
}

Job job_of(DecoderShape shape, Cluster cluster, std::uint32_t global_batch) {
  Job job;
  job.name = shape.name;
  job.graph = build_decoder(shape).value();
  job.cluster = std::move(cluster);
  job.global_batch = global_batch;
  return job;
}

}  // namespace

Job gpt3_175b_on_1024() {
  return job_of({.name = "gpt3-175b",
                 .layers = 96,
                 .hidden_size = 12288,
                 .heads = 96,
                 .sequence_length = 2048,
                 .vocabulary = 51200,
                 .ffn_size = 0,
                 .micro_batch_size = 1,
                 .bytes_per_element = 2},
                a800_cluster(128, 8), 1536);
}

Job small_job(std::uint32_t blocks, std::uint32_t nodes, std::uint32_t devices,
              std::uint32_t global_batch) {
  return job_of({.name = "small",
                 .layers = blocks,
                 .hidden_size = 2048,
                 .heads = 16,
                 .sequence_length = 1024,
                 .vocabulary = 32000,
                 .ffn_size = 0,
                 .micro_batch_size = 1,
                 .bytes_per_element = 2},
                a800_cluster(nodes, devices), global_batch);
}

Job uneven_job(std::uint64_t seed, std::uint32_t layers, std::uint32_t nodes, std::uint32_t devices,
               std::uint32_t global_batch) {
  Draw draw(seed);
  Job job;
  job.name = "uneven";
  job.cluster = a800_cluster(nodes, devices);
  job.global_batch = global_batch;
  Graph& graph = job.graph;
  graph.name = "uneven";
  const auto add = [&](OpNode op) {
    op.id = static_cast<std::uint32_t>(graph.nodes.size());
    op.bwd_flops = 2 * op.fwd_flops;
    if (op.id > 0) {
      const OpNode& before = graph.nodes.back();
      graph.edges.push_back({before.id, op.id, before.out_bytes, "bf16"});
    }
    graph.nodes.push_back(std::move(op));
  };
  for (std::uint32_t l = 0; l < layers; ++l) {
    const double boundary = 8e6;
    add({.name = "norm",
         .kind = OpKind::kNorm,
         .layer = l,
         .param_bytes = 1e4,
         .act_bytes = boundary,
         .out_bytes = boundary});
    add({.name = "up",
         .kind = OpKind::kColumnParallelLinear,
         .layer = l,
         .fwd_flops = draw.between(2e11, 2e12),
         .param_bytes = draw.between(5e7, 3e8),
         .act_bytes = draw.between(1e7, 2e8),
         .work_bytes = draw.between(1e6, 1e8),
         .out_bytes = 2 * boundary});
    add({.name = "down",
         .kind = OpKind::kRowParallelLinear,
         .layer = l,
         .fwd_flops = draw.between(2e11, 2e12),
         .param_bytes = draw.between(5e7, 3e8),
         .act_bytes = draw.between(1e7, 4e8),
         .out_bytes = boundary});
  }
  return job;
}

ClusterState random_state(const Cluster& cluster, Draw& draw, std::uint32_t paths) {
  ClusterState state;
  for (std::uint32_t r = 0; r < cluster.device_count(); ++r) {
    state.device_slowdown.push_back(draw.between(1.0, 1.5));
  }
  const auto nodes = static_cast<std::uint32_t>(cluster.nodes.size());
  for (std::uint32_t n = 0; n < nodes; ++n) {
    state.node_links.push_back(
        {draw.between(0.9, 3.0), draw.between(0.9, 3.0), draw.between(0.9, 3.0)});
  }
  while (state.paths.size() < paths) {
    const PathSlowdown path{NodeId(draw.between(0U, nodes - 1)),
                            NodeId(draw.between(0U, nodes - 1)), draw.between(1.0, 8.0)};
    if (path.from != path.to && state.path(path.from, path.to) == 1) {
      state.paths.push_back(path);
    }
  }
  return state;
}

void for_each_cut(std::uint32_t layers, std::uint32_t stages,
                  const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  std::vector<std::uint32_t> cuts{0};
  const std::function<void()> extend = [&] {
    if (cuts.size() == stages) {
      visit(cuts);
      return;
    }
    const auto left = static_cast<std::uint32_t>(stages - cuts.size());
    for (std::uint32_t next = cuts.back() + 1; next + left <= layers; ++next) {
      cuts.push_back(next);
      extend();
      cuts.pop_back();
    }
  };
  extend();
}

Plan simple_plan(const Job& job, const std::vector<std::uint32_t>& cuts, std::uint32_t replicas,
                 std::uint16_t width) {
  Plan plan;
  plan.job = job.name;
  plan.schedule = job.schedule;
  plan.pp_splits = cuts;
  plan.tp_width.assign(job.graph.layer_count(), width);
  plan.checkpoint.assign(job.graph.layer_count(), false);
  const std::uint32_t groups = job.cluster.node_types[0].devices / width;
  const std::uint32_t total = job.total_microbatches();
  std::uint32_t slot = 0;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    plan.microbatches.push_back(total / replicas + (r < total % replicas ? 1 : 0));
    auto& row = plan.placement.emplace_back();
    for (std::size_t s = 0; s < cuts.size(); ++s, ++slot) {
      Position& position = row.emplace_back();
      position.node = NodeId(slot / groups);
      for (std::uint16_t d = 0; d < width; ++d) {
        position.devices.push_back(static_cast<std::uint16_t>(slot % groups * width + d));
      }
    }
  }
  return plan;
}

}  // namespace tapas::solver::testing
