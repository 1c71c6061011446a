#include "solver/cost/predict.h"
#include "solver/model/decoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

/// Steps that others measured and published against what the physical model predicts for the same
/// job and plan. One set of efficiency numbers per device type for all runs; docs/cost-model.md,
/// "Against measured runs", says how they were fitted and to what.
namespace tapas::solver {
namespace {

struct MeasuredRun {
  std::string set;
  std::string name;
  DeviceType device;
  std::uint32_t nics = 8;  ///< of a server of eight devices
  DecoderShape shape;
  std::uint16_t tp = 1;
  std::uint32_t pp = 1, dp = 1, batch = 1, interleave = 1;
  bool recomputed = false;  ///< whole blocks
  bool sequence_parallel = false;
  bool megatron_core = false;  ///< shared optimizer, overlapped gradients and TP collectives
  double gradient_bytes = 2;
  double seconds = 0;
  bool fitted = false;  ///< took part in the fit; the others only test it
};

DeviceType a100() {
  return {.name = "A100-SXM4-80GB",
          .peak_flops = 312e12,
          .memory_bytes = 80e9,
          .memory_bytes_per_s = 2.039e12,
          .matmul_efficiency = 0.79,
          .matmul_half_flops = 1.26e10,
          .attention_efficiency = 0.5,
          .memory_efficiency = 0.75,
          .operator_launch_s = 1.3e-4,
          .collective_launch_s = 1.3e-4,
          .collective_library = "nccl"};
}

/// Its own peak, bandwidth and largest efficiency; the time a kernel loses and all else as A100.
DeviceType h100() {
  DeviceType type = a100();
  type.name = "H100-SXM5-80GB";
  type.peak_flops = 989e12;
  type.memory_bytes_per_s = 3.35e12;
  type.matmul_efficiency = 0.68;
  type.matmul_half_flops = 4e10;
  return type;
}

DeviceType b200() {
  DeviceType type = a100();
  type.name = "B200-SXM-180GB";
  type.peak_flops = 2250e12;
  type.memory_bytes_per_s = 8e12;
  type.matmul_efficiency = 0.46;
  type.matmul_half_flops = 2e10;
  return type;
}

DecoderShape gpt(std::uint32_t hidden, std::uint32_t layers, std::uint32_t heads,
                 std::uint32_t sequence, std::uint32_t vocabulary, std::uint32_t micro_batch) {
  DecoderShape shape;
  shape.name = "gpt";
  shape.layers = layers;
  shape.hidden_size = hidden;
  shape.heads = heads;
  shape.sequence_length = sequence;
  shape.vocabulary = vocabulary;
  shape.micro_batch_size = micro_batch;
  return shape;
}

/// Seconds from "achieved TFLOPS per GPU". Those of SC21 count the recomputation and the head:
/// 96 B s L h^2 (1 + s/6h + V/16Lh) (Narayanan et al. 2021, section 5.1 and appendix); without
/// recomputation it is 72 B s L h^2 (1 + s/6h + V/12Lh).
double seconds_at(const MeasuredRun& run, double tflops) {
  const double s = run.shape.sequence_length;
  const double l = run.shape.layers;
  const double h = run.shape.hidden_size;
  const double v = run.shape.vocabulary;
  const double passes = run.recomputed ? 4 : 3;
  const double flops =
      24 * passes * run.batch * s * l * h * h * (1 + s / (6 * h) + v / (4 * passes * l * h));
  return flops / (tflops * 1e12 * run.tp * run.pp * run.dp);
}

/// Narayanan et al. 2021 (SC21), Tables 1 and 2 (rows of its own scheme): A100, 8 a node with 8 HDR
/// NICs; configurations from the scripts published with Megatron-LM.
std::vector<MeasuredRun> narayanan() {
  std::vector<MeasuredRun> runs;
  const auto add = [&](const char* set, const char* name, std::uint32_t h, std::uint32_t l,
                       std::uint32_t a, std::uint16_t t, std::uint32_t p, std::uint32_t d,
                       std::uint32_t batch, std::uint32_t b, std::uint32_t v, double tflops) {
    MeasuredRun run{.set = set,
                    .name = name,
                    .device = a100(),
                    .shape = gpt(h, l, a, 2048, 51200, b),
                    .tp = t,
                    .pp = p,
                    .dp = d,
                    .batch = batch,
                    .interleave = v,
                    .recomputed = true};
    run.shape.scores = AttentionScores::kStored;
    run.seconds = seconds_at(run, tflops);
    runs.push_back(run);
  };
  add("SC21 table 1", "1.7B", 2304, 24, 24, 1, 1, 32, 512, 16, 1, 137);
  add("SC21 table 1", "3.6B", 3072, 30, 32, 2, 1, 32, 512, 16, 1, 138);
  add("SC21 table 1", "7.5B", 4096, 36, 32, 4, 1, 32, 512, 16, 1, 142);
  add("SC21 table 1", "39.1B", 8192, 48, 64, 8, 2, 32, 1536, 4, 1, 138);
  add("SC21 table 1", "76.1B", 10240, 60, 80, 8, 4, 32, 1792, 2, 3, 140);
  add("SC21 table 1", "310.1B", 16384, 96, 128, 8, 16, 15, 2160, 1, 2, 155);
  add("SC21 table 1", "1008B", 25600, 128, 160, 8, 64, 6, 3072, 1, 1, 163);
  add("SC21 table 2", "174.6B on 384", 12288, 96, 96, 8, 12, 4, 1536, 1, 1, 153);
  add("SC21 table 2", "174.6B on 1536", 12288, 96, 96, 8, 12, 16, 1536, 1, 1, 141);
  add("SC21 table 2", "529.6B on 560", 20480, 105, 128, 8, 35, 2, 2240, 1, 1, 171);
  add("SC21 table 2", "529.6B on 2240", 20480, 105, 128, 8, 35, 8, 2240, 1, 1, 159);
  return runs;
}

/// Korthikanti et al. 2022, Table 5: iteration times with full recomputation, and with sequence
/// parallelism and selective recomputation. The same machines.
std::vector<MeasuredRun> korthikanti() {
  std::vector<MeasuredRun> runs;
  const auto add = [&](const char* name, std::uint32_t h, std::uint32_t l, std::uint32_t a,
                       std::uint32_t p, std::uint32_t batch, std::uint32_t b, std::uint32_t v,
                       double full_s, double selective_s) {
    MeasuredRun run{.set = "MLSys23",
                    .name = name,
                    .device = a100(),
                    .shape = gpt(h, l, a, 2048, 51200, b),
                    .tp = 8,
                    .pp = p,
                    .batch = batch,
                    .interleave = v,
                    .recomputed = true,
                    .seconds = full_s};
    run.shape.scores = AttentionScores::kStored;
    runs.push_back(run);
    run.name += " selective";
    run.shape.scores = AttentionScores::kRecomputed;
    run.recomputed = false;
    run.sequence_parallel = true;
    run.seconds = selective_s;
    runs.push_back(run);
  };
  add("22B", 6144, 48, 64, 1, 4, 4, 1, 1.42, 1.10);
  add("175B", 12288, 96, 96, 8, 64, 1, 3, 18.13, 13.75);
  add("530B", 20480, 105, 128, 35, 280, 1, 3, 49.05, 37.83);
  add("1T", 25600, 128, 160, 64, 512, 1, 1, 94.42, 71.49);
  return runs;
}

/// Megatron-LM's README, table of H100 runs (Megatron-core: flash attention, sequence parallelism,
/// distributed optimizer, overlapped communication). It gives neither micro-batch size nor
/// interleaving nor the gradients' type: 1, none and bf16 are assumed.
std::vector<MeasuredRun> megatron_h100() {
  std::vector<MeasuredRun> runs;
  const auto add = [&](const char* name, std::uint32_t h, std::uint32_t l, std::uint32_t a,
                       std::uint16_t t, std::uint32_t p, std::uint32_t batch, double tflops) {
    MeasuredRun run{.set = "H100",
                    .name = name,
                    .device = h100(),
                    .shape = gpt(h, l, a, 4096, 131072, 1),
                    .tp = t,
                    .pp = p,
                    .dp = 48,
                    .batch = batch,
                    .sequence_parallel = true,
                    .megatron_core = true};
    run.seconds = seconds_at(run, tflops);
    runs.push_back(run);
  };
  add("1.7B", 2048, 24, 16, 1, 1, 192, 408.8);
  add("7.1B", 4096, 30, 32, 2, 1, 192, 465.9);
  add("32B", 7168, 48, 56, 8, 1, 192, 459.6);
  add("70B", 8192, 84, 64, 8, 2, 384, 419.7);
  add("177B", 12288, 96, 96, 8, 6, 1152, 432.8);
  add("314B", 16384, 96, 128, 8, 8, 1536, 474.4);
  return runs;
}

/// SimuMax (MooreThreads/SimuMax, docs/b200/b200_release_v1.2_summary.json, dense models without
/// context parallelism): Megatron-core on one server of 8 B200, layers left out to fit.
std::vector<MeasuredRun> simumax_b200() {
  std::vector<MeasuredRun> runs;
  const auto add = [&](bool large, std::uint16_t t, std::uint32_t p, std::uint32_t microbatches,
                       double milliseconds) {
    DecoderShape shape =
        large ? gpt(16384, 4, 128, 4096, 128256, 1) : gpt(8192, 12, 64, 4096, 128256, 1);
    shape.kv_heads = large ? 16 : 8;
    shape.ffn_size = large ? 53248 : 28672;
    shape.gated_ffn = shape.rms_norm = shape.rotary = true;
    shape.biases = shape.dropout = shape.tied_head = false;
    const std::uint32_t d = 8 / (t * p);
    runs.push_back(
        {.set = "B200",
         .name = fmt::format("{} tp{} pp{} m{}", large ? "405B" : "70B", t, p, microbatches),
         .device = b200(),
         .shape = shape,
         .tp = t,
         .pp = p,
         .dp = d,
         .batch = d * microbatches,
         .sequence_parallel = true,
         .gradient_bytes = 4,
         .seconds = milliseconds / 1e3});
  };
  add(false, 1, 2, 4, 843.0);
  add(false, 4, 1, 4, 409.8);
  add(false, 2, 1, 8, 1387.0);
  add(false, 4, 1, 8, 765.6);
  add(false, 2, 1, 32, 5376.5);
  add(false, 8, 1, 32, 2073.7);
  add(true, 1, 2, 4, 1074.6);
  add(true, 2, 1, 4, 907.3);
  add(true, 8, 1, 4, 258.8);
  add(true, 2, 1, 8, 1716.8);
  add(true, 4, 1, 8, 899.6);
  add(true, 1, 2, 32, 7046.4);
  add(true, 4, 1, 32, 3455.4);
  add(true, 8, 1, 32, 1901.8);
  return runs;
}

/// vTrain's measured iterations (Megatron-DeepSpeed, full recomputation, A100, 8 a node with 4 HDR
/// NICs), when its tables are at hand. TP 16 spans two nodes. The table of single-node runs lacks
/// the first column.
std::vector<MeasuredRun> vtrain(const char* table) {
  std::ifstream file(std::filesystem::path(TAPAS_SOURCE_DIR) / ".." / "shared" / "data" /
                     "profiles" / "vtrain" / table);
  std::vector<MeasuredRun> runs;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::vector<double> cell;
    std::stringstream cells(line);
    for (std::string text; std::getline(cells, text, ',');) {
      cell.push_back(std::stod(text));
    }
    const std::size_t first = cell.size() - 11;  // GPUs, batch, micro-batch, hidden, heads, layers,
    const auto whole = [&](std::size_t k) {      // sequence, TP, DP, PP, milliseconds
      return static_cast<std::uint32_t>(cell.at(first + k));
    };
    MeasuredRun run{.set = "vTrain",
                    .name = fmt::format("h{} tp{} pp{} dp{} mb{}", whole(3), whole(7), whole(9),
                                        whole(8), whole(2)),
                    .device = a100(),
                    .nics = 4,
                    .shape = gpt(whole(3), whole(5), whole(4), whole(6), 51200, whole(2)),
                    .tp = static_cast<std::uint16_t>(whole(7)),
                    .pp = whole(9),
                    .dp = whole(8),
                    .batch = whole(1),
                    .recomputed = true,
                    .seconds = cell.back() / 1e3};
    run.shape.scores = AttentionScores::kStored;
    runs.push_back(run);
  }
  return runs;
}

/// The first run of each set and every `nth` after it took part in the fit: chosen before it.
std::vector<MeasuredRun> marked(std::vector<MeasuredRun> runs, std::size_t nth) {
  std::map<std::string, std::size_t> seen;
  for (MeasuredRun& run : runs) {
    run.fitted = seen[run.set]++ % nth == 0;
  }
  return runs;
}

/// What NCCL gets of the links: 20, 20.6 and 40.1 GB/s of an NVLink, 24 and 48 of a NIC.
NodeType server(const MeasuredRun& run) {
  const bool ampere = run.device.peak_flops < 400e12;
  const bool hopper = !ampere && run.device.peak_flops < 1000e12;
  NodeType type;
  type.name = "server";
  type.devices = 8;
  type.fast_link_bytes_per_s = ampere ? 240e9 : hopper ? 370e9 : 721e9;
  type.fast_link_latency_s = 2e-6;
  type.nics = run.nics;
  type.nic_bytes_per_s = ampere ? 24e9 : 48e9;
  if (run.tp > 8) {  // a group over two servers moves at the pace of their NICs
    type.devices = run.tp;
    type.fast_link_bytes_per_s = type.nic_bytes_per_s * type.nics;
    type.nics *= run.tp / 8U;
  }
  return type;
}

Job job_of(const MeasuredRun& run) {
  Job job;
  job.name = "measured";
  job.graph = build_decoder(run.shape).value();
  Cluster& cluster = job.cluster;
  cluster.name = "measured";
  cluster.device_types = {run.device};
  cluster.node_types = {server(run)};
  const std::uint32_t devices = run.tp * run.pp * run.dp;
  for (std::uint32_t n = 0; n * cluster.node_types[0].devices < devices; ++n) {
    cluster.nodes.push_back({.name = fmt::format("n{}", n), .tor = "tor", .pod = "pod"});
  }
  cluster.tor = {"tor", 20e-6, 1};
  cluster.pod = {"pod", 20e-6, 1};
  cluster.core = {"core", 20e-6, 1};
  job.global_batch = run.batch;
  job.gradient_bytes_per_param = run.gradient_bytes;
  job.zero_stage = run.recomputed || !run.sequence_parallel ? 0 : 1;
  job.overlap_tp = run.megatron_core;
  job.overlap_gradients = run.megatron_core;
  return job;
}

/// Megatron's layout: TP inside, then DP, then PP; equal stages, the embedding on the first and the
/// head on the last.
Plan plan_of(const MeasuredRun& run, const Job& job) {
  Plan plan;
  plan.job = job.name;
  const std::uint32_t layers = job.graph.layer_count();
  plan.interleave = run.interleave;
  plan.schedule = run.interleave > 1 ? Schedule::kInterleaved : Schedule::k1f1b;
  const std::uint32_t chunks = run.pp * run.interleave;
  for (std::uint32_t s = 0; s < chunks; ++s) {
    plan.pp_splits.push_back(s == 0 ? 0 : 1 + s * run.shape.layers / chunks);
  }
  plan.tp_width.assign(layers, run.tp);
  plan.checkpoint.assign(layers, run.recomputed);
  plan.checkpoint.front() = plan.checkpoint.back() = false;
  plan.sp_width = run.sequence_parallel ? run.tp : std::uint16_t{1};
  plan.microbatches.assign(run.dp, run.batch / run.dp / run.shape.micro_batch_size);
  const std::uint32_t groups = job.cluster.node_types[0].devices / run.tp;
  for (std::uint32_t r = 0; r < run.dp; ++r) {
    auto& row = plan.placement.emplace_back();
    for (std::uint32_t s = 0; s < run.pp; ++s) {
      const std::uint32_t slot = s * run.dp + r;
      Position& position = row.emplace_back();
      position.node = NodeId(slot / groups);
      for (std::uint16_t d = 0; d < run.tp; ++d) {
        position.devices.push_back(static_cast<std::uint16_t>(slot % groups * run.tp + d));
      }
    }
  }
  return plan;
}

struct Errors {
  std::vector<double> all;
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double e : all) {
      sum += e;
    }
    return sum / static_cast<double>(all.size());
  }
  [[nodiscard]] double median() const {
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  [[nodiscard]] double largest() const { return *std::max_element(all.begin(), all.end()); }
  [[nodiscard]] std::size_t above(double limit) const {
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [limit](double e) { return e > limit; }));
  }
};

std::string line(const std::string& what, const Errors& e) {
  return fmt::format("{:28} {:3} runs: median {:5.2f} %, mean {:5.2f} %, largest {:5.2f} %\n", what,
                     e.all.size(), 100 * e.median(), 100 * e.mean(), 100 * e.largest());
}

/// Prints and returns the absolute relative errors, of the fitted runs and of the others.
std::map<bool, Errors> compare(const std::vector<MeasuredRun>& runs, bool run_by_run = true) {
  std::map<bool, Errors> by_part;
  std::map<std::string, Errors> by_set;
  for (const MeasuredRun& run : runs) {
    const Job job = job_of(run);
    const double predicted = predict(job, plan_of(run, job)).step_time_s;
    const double error = predicted / run.seconds - 1;
    const char* part = run.fitted ? "fit" : "test";
    if (run_by_run) {
      std::cout << fmt::format(
          "{:12} {:26} {:4} measured {:7.3f} s, predicted {:7.3f} s, {:+6.1f} %\n", run.set,
          run.name, part, run.seconds, predicted, 100 * error);
    }
    by_part[run.fitted].all.push_back(std::abs(error));
    by_set[fmt::format("{}, {}", run.set, part)].all.push_back(std::abs(error));
  }
  for (const auto& [set, errors] : by_set) {
    std::cout << line(set, errors);
  }
  return by_part;
}

TEST(MeasuredSteps, OfPublishedTablesArePredicted) {
  std::vector<MeasuredRun> runs = narayanan();
  for (const auto& more : {korthikanti(), megatron_h100(), simumax_b200()}) {
    runs.insert(runs.end(), more.begin(), more.end());
  }
  for (const auto& [fitted, errors] : compare(marked(runs, 2))) {
    EXPECT_LE(errors.median(), 0.05) << fitted;
    EXPECT_LE(errors.mean(), 0.05) << fitted;
    EXPECT_LE(errors.largest(), 0.10) << fitted;
  }
}

TEST(MeasuredSteps, OfVTrainsClusterArePredicted) {
  const auto runs = marked(vtrain("ground_truth_multi.csv"), 2);
  if (runs.empty()) {
    GTEST_SKIP() << "skipped: vTrain's table is not at hand";
  }
  for (const auto& [fitted, errors] : compare(runs)) {
    EXPECT_LE(errors.median(), 0.05) << fitted;
    EXPECT_LE(errors.mean(), 0.08) << fitted;
    // The others contradict their neighbours in the same table.
    EXPECT_LE(6 * errors.above(0.15), errors.all.size()) << fitted;
  }
}

TEST(MeasuredSteps, OfVTrainsSingleNodesArePredicted) {
  const auto runs = marked(vtrain("ground_truth_single.csv"), 9);
  if (runs.empty()) {
    GTEST_SKIP() << "skipped: vTrain's table is not at hand";
  }
  for (const auto& [fitted, errors] : compare(runs, false)) {
    EXPECT_LE(errors.median(), 0.06) << fitted;
    EXPECT_LE(errors.mean(), 0.085) << fitted;
  }
}

}  // namespace
}  // namespace tapas::solver
