#pragma once

#include "solver/model/decoder.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::twin {

/// Nodes n0, n1, ... of two devices each; a GPT of `blocks` blocks.
inline solver::Job small_job(std::uint32_t nodes = 4, std::uint32_t blocks = 4) {
  solver::Job job;
  job.name = "small";
  solver::DecoderShape shape;
  shape.name = "gpt-small";
  shape.layers = blocks;
  shape.hidden_size = 2048;
  shape.heads = 16;
  shape.sequence_length = 1024;
  shape.vocabulary = 16'384;
  job.graph = *solver::build_decoder(shape);
  solver::DeviceType device;
  device.name = "A800";
  device.peak_flops = 312e12;
  device.memory_bytes = 80e9;
  device.memory_bytes_per_s = 2e12;
  job.cluster.name = "small";
  job.cluster.device_types = {device};
  solver::NodeType type;
  type.name = "pair";
  type.devices = 2;
  type.fast_link_bytes_per_s = 200e9;
  type.fast_link_latency_s = 2e-6;
  type.nic_bytes_per_s = 25e9;
  type.nics = 2;
  job.cluster.node_types = {type};
  for (std::uint32_t n = 0; n < nodes; ++n) {
    solver::Node node;
    node.name = "n" + std::to_string(n);
    job.cluster.nodes.push_back(node);
  }
  job.global_batch = 16;
  return job;
}

/// Replica r, stage s on the whole node r * stages + s; layers and microbatches in equal shares.
inline solver::Plan small_plan(const solver::Job& job, std::uint64_t epoch = 1,
                               std::uint32_t replicas = 2) {
  const auto nodes = static_cast<std::uint32_t>(job.cluster.nodes.size());
  const std::uint32_t stages = nodes / replicas;
  const std::uint32_t layers = job.graph.layer_count();
  solver::Plan plan;
  plan.job = job.name;
  plan.epoch = Epoch{epoch};
  plan.parent = Epoch{epoch - 1};
  for (std::uint32_t s = 0; s < stages; ++s) {
    plan.pp_splits.push_back(s * layers / stages);
  }
  plan.tp_width.assign(layers, 2);
  plan.checkpoint.assign(layers, false);
  for (std::uint32_t r = 0; r < replicas; ++r) {
    plan.microbatches.push_back(job.total_microbatches() / replicas);
    auto& row = plan.placement.emplace_back();
    for (std::uint32_t s = 0; s < stages; ++s) {
      row.push_back({NodeId{r * stages + s}, {0, 1}});
    }
  }
  return plan;
}

}  // namespace tapas::twin
