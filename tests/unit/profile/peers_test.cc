// Jobs that other planners were run on, with the same profiles: our plan is at least as good by the
// other's own measure. docs/performance.md has the table.
#include "solver/cost/layer_table.h"
#include "solver/profile/profile.h"
#include "solver/search/solve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace tapas::solver::profile {
namespace {

namespace fs = std::filesystem;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) {
      GTEST_SKIP() << "skipped: no " << folder_;
    }
  }
  [[nodiscard]] Graph graph(Layout layout, const std::vector<std::string>& names,
                            const Options& options) const {
    std::vector<File> files;
    for (const std::string& name : names) {
      files.push_back(load_file((folder_ / name).string()).value());
    }
    return read(layout, files, options).value().graph;
  }

  fs::path folder_ = fs::path(TAPAS_SOURCE_DIR) / ".." / "shared" / "data" / "profiles";
};

struct Servers {
  std::string device;
  double memory_bytes = 0;
  std::uint32_t nodes = 1;
  std::uint32_t devices = 1;
  double fast_link_bytes_per_s = 0;
  double nic_bytes_per_s = 0;  ///< of each device
};

/// A job whose times all come from the profile.
Job job_on(const Servers& servers, Graph graph, std::uint32_t global_batch) {
  Job job;
  job.name = "peer";
  job.graph = std::move(graph);
  job.global_batch = global_batch;
  job.zero_stage = 0;
  job.limits.memory_reserve_ratio = 0;
  job.limits.recompute_ratio = 1;
  Cluster& cluster = job.cluster;
  cluster.name = "peer";
  DeviceType device;
  device.name = servers.device;
  device.peak_flops = 312e12;
  device.memory_bytes = servers.memory_bytes;
  device.memory_bytes_per_s = 1e15;  // no optimizer time, as in the others' models
  device.matmul_efficiency = 0.7;
  device.attention_efficiency = 0.5;
  device.collective_library = "nccl";
  cluster.device_types = {device};
  NodeType node;
  node.name = "server";
  node.devices = servers.devices;
  node.fast_link_bytes_per_s = servers.fast_link_bytes_per_s;
  node.nics = servers.devices;
  node.nic_bytes_per_s = servers.nic_bytes_per_s;
  cluster.node_types = {node};
  for (std::uint32_t n = 0; n < servers.nodes; ++n) {
    cluster.nodes.push_back({"node" + std::to_string(n), 0, "tor", "pod", false});
  }
  cluster.tor = {"tor", 1e-6, 1};
  cluster.pod = {"pod", 1e-6, 1};
  cluster.core = {"core", 1e-6, 1};
  return job;
}

/// Piper, BERT-32, 8 devices of 8 GB, 25 GiB/s: 0.1659 s per sample on the busiest stage, transfers
/// counted as work of both ends.
TEST_F(Peers, PiperOnBert) {
  constexpr double kRate = 25 * kGib;
  constexpr double kPiper = 0.1659;
  Options options;
  options.device = "A100";
  Graph graph = this->graph(Layout::kPiper, {"piper/bert32a100.json"}, options);
  // The mask goes from the first stage to every later layer; Piper charges its sender. The layers
  // of the first stage, some five, do not get it through a link.
  double sent_s = 0;
  for (const OpNode& op : graph.nodes) {
    double most = 0;
    std::uint32_t readers = 0;
    for (const OpEdge& edge : graph.edges) {
      readers += edge.src == op.id ? 1 : 0;
      most = std::max(most, edge.src == op.id ? edge.bytes : 0);
    }
    if (readers > 8) {
      sent_s = 2 * (readers - 5.0) * most / kRate;
    }
  }
  ASSERT_GT(sent_s, 0);
  for (OpNode& op : graph.nodes) {
    if (op.name == "Embedding") {
      for (MeasuredOp& m : op.measured) {
        m.backward_comm_s = sent_s;
      }
    }
  }
  Job job = job_on({"A100", 8 * kGib, 1, 8, kRate, kRate}, graph, 1920);
  job.optimizer_bytes_per_param = 0;
  job.gradient_bytes_per_param = 2;
  job.search.tp_widths = {1};
  job.search.min_stages = 8;
  job.search.max_stages = 8;
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  const Plan& plan = outcome->plan;
  double worst = 0;
  for (std::uint32_t s = 0; s < plan.stages(); ++s) {
    const LayerRange range = stage_layers(plan, 0, s, graph.layer_count());
    std::vector<std::uint32_t> inside;
    for (const OpNode& op : graph.nodes) {
      if (op.layer >= range.first && op.layer < range.last) {
        inside.push_back(op.id);
      }
    }
    const auto is_inside = [&](std::uint32_t id) {
      return std::find(inside.begin(), inside.end(), id) != inside.end();
    };
    double moved = 0;
    for (const OpEdge& edge : graph.edges) {
      moved += is_inside(edge.src) != is_inside(edge.dst) ? 2 * edge.bytes : 0;
    }
    worst = std::max(worst, plan.predicted.stage_time_s[s] - (s == 0 ? sent_s : 0) + moved / kRate);
  }
  RecordProperty("seconds_per_sample", std::to_string(worst));
  EXPECT_LE(worst, kPiper);
}

/// Sailor, GPT-Neo-2.7B on 128 A100-40, batch 2,048: 12.35 s per iteration.
TEST_F(Peers, SailorOnGptNeo) {
  constexpr double kSailor = 12.35;
  Options options;
  options.micro_batch_size = 2;
  Graph graph =
      this->graph(Layout::kSailor,
                  {"sailor/GPT-Neo-2.7_A100-40_profile.json", "sailor/llm_info.json"}, options);
  // Its rules: 24 bytes per parameter, 3 GB apart, no recomputation; a pair of devices has 3.7 GB/s
  // to another node.
  Job job = job_on({"A100-40", 40 * kGib - 3e9, 32, 4, 240e9, 3.675e9 / 2}, graph, 2048);
  job.optimizer_bytes_per_param = 20;
  job.gradient_bytes_per_param = 2;
  job.limits.recompute_ratio = 0;
  job.search.tp_widths = {2};
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_LE(outcome->plan.predicted.step_time_s, kSailor) << outcome->summary;
}

/// Galvatron, LLaMA-7B on 8 A100, 36 GB each: 12.07 samples per second.
TEST_F(Peers, GalvatronOnLlama) {
  constexpr double kGalvatron = 12.07;
  Options options;
  options.device = "A100";
  options.layers = 32;
  options.micro_batch_size = 4;
  Graph graph = this->graph(Layout::kGalvatron,
                            {"galvatron/llama7b_computation_bf16_h4096_seq2048.json",
                             "galvatron/llama7b_memory_bf16_h4096_seq2048.json"},
                            options);
  Job job = job_on({"A100", 36 * kGib, 1, 8, 154e9, 6e9}, graph, 64);
  job.gradient_bytes_per_param = 2;
  const auto outcome = solve(job);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_GE(64 / outcome->plan.predicted.step_time_s, kGalvatron) << outcome->summary;
}

}  // namespace
}  // namespace tapas::solver::profile
