#include "solver/model/decoder.h"
#include "solver/model/io/load.h"
#include "solver/search/solve.h"
#include "tests/bench/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace tapas::bench {
namespace {

solver::Job large_job() {
  auto job = solver::load_job(TAPAS_SOURCE_DIR "/config/examples/gpt3-175b-a800-1024.json");
  if (!job) {
    throw std::runtime_error(job.error().message);
  }
  return *std::move(job);
}

solver::SolveOutcome solved(const solver::Job& job) {
  auto outcome = solver::solve(job);
  if (!outcome) {
    throw std::runtime_error(outcome.error().message);
  }
  return *std::move(outcome);
}

/// Every operator a layer of its own, so that pipelines may be cut anywhere.
solver::Job by_operator(solver::Job job) {
  for (std::size_t k = 0; k < job.graph.nodes.size(); ++k) {
    job.graph.nodes[k].layer = static_cast<std::uint32_t>(k);
  }
  return job;
}

/// The large job with a decoder of other numbers and so many nodes of 8 devices.
solver::Job resized(std::uint32_t blocks, std::uint32_t hidden_size, std::uint32_t nodes) {
  solver::Job job = large_job();
  solver::DecoderShape shape;
  shape.name = "resized";
  shape.layers = blocks;
  shape.hidden_size = hidden_size;
  shape.heads = hidden_size / 128;
  shape.sequence_length = 2048;
  shape.vocabulary = 51200;
  auto graph = solver::build_decoder(shape);
  if (!graph) {
    throw std::runtime_error(graph.error().message);
  }
  job.graph = *std::move(graph);
  const solver::Node example = job.cluster.nodes.front();
  job.cluster.nodes.clear();
  for (std::uint32_t n = 0; n < nodes; ++n) {
    solver::Node node = example;
    node.name = "node-" + std::to_string(n);
    node.tor = "tor" + std::to_string(n / 16);
    node.pod = "pod" + std::to_string(n / 64);
    job.cluster.nodes.push_back(std::move(node));
  }
  return job;
}

double cpu_of(const solver::Job& job, solver::SolveOutcome* outcome = nullptr) {
  const double before = thread_cpu_s();
  solver::SolveOutcome result = solved(job);
  const double cpu = thread_cpu_s() - before;
  if (outcome != nullptr) {
    *outcome = std::move(result);
  }
  return cpu;
}

/// Operators instead of blocks as what may be cut.
std::vector<Measurement> operators() {
  // 133 blocks of 9 operators and 3 more are 1,200; the narrower blocks hold 175e9 parameters.
  constexpr std::uint32_t kBlocks = 133;
  constexpr std::uint32_t kHidden = 10496;
  solver::SolveOutcome small;
  const double small_cpu = cpu_of(by_operator(resized(kBlocks, kHidden, 128)), &small);
  constexpr std::uint32_t kManyBlocks = 1111;
  constexpr std::uint32_t kManyHidden = 2048;
  solver::SolveOutcome large;
  const double large_cpu = cpu_of(by_operator(resized(kManyBlocks, kManyHidden, 512)), &large);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {{"offline.gpt3_175b_ops_1024.cpu", small_cpu, "s", 3, true},
          {"offline.gpt3_175b_ops_1024.gap", small.plan.predicted.gap_ratio * 100, "%"},
          {"offline.ops_10k_4096.cpu", large_cpu, "s", 10, true},
          {"offline.ops_10k_4096.gap", large.plan.predicted.gap_ratio * 100, "%"},
          {"offline.peak_memory", static_cast<double>(usage.ru_maxrss) / 1024, "MiB", 1024, true}};
}

/// Growth in one number at a time, around the large job.
std::vector<Measurement> growth() {
  std::vector<Measurement> rows;
  for (const std::uint32_t blocks : {24U, 48U, 96U, 192U, 384U, 768U}) {
    rows.push_back({"offline.growth.layers_" + std::to_string(blocks),
                    cpu_of(resized(blocks, 8192, 128)), "s"});
  }
  for (const std::uint32_t stages : {4U, 8U, 16U, 32U, 64U}) {
    solver::Job job = large_job();
    job.search.max_stages = stages;
    rows.push_back({"offline.growth.stages_" + std::to_string(stages), cpu_of(job), "s"});
  }
  for (const std::uint32_t nodes : {16U, 32U, 64U, 128U, 256U, 512U, 1024U}) {
    rows.push_back({"offline.growth.devices_" + std::to_string(nodes * 8),
                    cpu_of(resized(96, 8192, nodes)), "s"});
  }
  solver::Job job = large_job();
  job.schedule = solver::Schedule::kInterleaved;
  rows.push_back({"offline.growth.interleaved", cpu_of(job), "s"});
  job = large_job();
  job.search.micro_batch_sizes = {1, 2, 4};
  rows.push_back({"offline.growth.micro_batches", cpu_of(job), "s"});
  job = large_job();
  job.search.stage_widths = true;
  rows.push_back({"offline.growth.stage_widths", cpu_of(job), "s"});
  return rows;
}

std::vector<Measurement> offline() {
  constexpr int kRuns = 5;
  solver::Job job = large_job();
  solver::SolveOutcome outcome;
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const double before = thread_cpu_s();
    outcome = solved(job);
    least = std::min(least, thread_cpu_s() - before);
  }
  const solver::Prediction& physical = outcome.plan.predicted;
  job.search.model = solver::CostModelKind::kDocument;
  job.search.max_stages = 16;  // stage time alone takes all that are allowed, whatever the bubble
  job.search.weights = {0, 0, 1};
  const solver::Prediction document = solved(job).plan.predicted;
  return {
      {"offline.gpt3_175b_1024.cpu", least, "s", 0.3, true},
      {"offline.gpt3_175b_1024.gap", physical.gap_ratio * 100, "%", 1, true},
      {"offline.gpt3_175b_1024.step", physical.step_time_s, "s"},
      {"offline.gpt3_175b_1024.bound", physical.lower_bound_s, "s"},
      {"offline.gpt3_175b_1024.peak_share", physical.peak_fraction * 100, "%"},
      {"offline.gpt3_175b_1024.document_peak_share", document.peak_fraction * 100, "%", 76, false}};
}

const Registration kOffline("offline.gpt3_175b_1024.", offline);
const Registration kOperators("offline.", operators);
const Registration kGrowth("offline.growth.", growth);

}  // namespace
}  // namespace tapas::bench
