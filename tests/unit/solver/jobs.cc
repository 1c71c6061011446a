#include "jobs.h"

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

Job job_of(GptShape shape, Cluster cluster, std::uint32_t global_batch) {
  Job job;
  job.name = shape.name;
  job.graph = build_gpt(shape).value();
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

}  // namespace tapas::solver::testing
