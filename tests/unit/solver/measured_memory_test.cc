#include "jobs.h"
#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/pipeline.h"
#include "solver/cost/stage_fit.h"
#include "solver/model/io/models.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Memory against published formulas and against measured runs. All rows of the sources are here.
namespace tapas::solver {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

DecoderShape model(const std::string& name) {
  auto found = catalogue_model(name);
  EXPECT_TRUE(found) << found.error().message;
  return found ? found->shape : DecoderShape{};
}

/// One device is enough to ask the cost model what a stage holds.
Job job_of(Graph graph) {
  Job job = testing::small_job(1, 1, 8, 8);
  job.graph = std::move(graph);
  return job;
}

struct Split {
  std::uint32_t stages = 1;
  /// Of each stage; empty = as many blocks each, the embedding to the first, the head to the last.
  std::vector<std::uint32_t> layers;
};
LayerRange stage_of(const Split& split, std::uint32_t stage, std::uint32_t layers) {
  LayerRange range;
  for (std::uint32_t s = 0; s <= stage; ++s) {
    range.first = range.last;
    range.last = !split.layers.empty()   ? range.first + split.layers[s]
                 : s + 1 == split.stages ? layers
                                         : 1 + (s + 1) * (layers - 2) / split.stages;
  }
  return range;
}

/// Most bytes that a device of any stage holds, 1F1B, nothing recomputed.
double peak_bytes(const Job& job, const Sharding& sharding, std::uint32_t replicas,
                  const Split& split, std::uint32_t microbatches) {
  const auto cost = make_cost_model(job);
  const LayerTable table(job, *cost, sharding);
  const MemoryRule rule = memory_rule(job, 0, replicas);
  const std::vector<bool> nothing(table.layers(), false);
  double most = 0;
  for (std::uint32_t s = 0; s < split.stages; ++s) {
    most = std::max(most, stage_memory_bytes(
                              table, rule, stage_of(split, s, table.layers()),
                              in_flight(Schedule::k1f1b, split.stages, s, microbatches), nothing));
  }
  return most;
}

/// Relative errors of predictions.
class Errors {
 public:
  /// Adds one and prints its line of the table.
  void add(const std::string& run, double predicted, double measured) {
    fmt::print("  {:<46} measured {:7.2f} GB  predicted {:7.2f} GB  {:+6.2f} %\n", run,
               measured / 1e9, predicted / 1e9, (predicted / measured - 1) * 100);
    errors_.push_back(std::abs(predicted / measured - 1));
  }
  /// Of the first `count`, in the order they were added.
  [[nodiscard]] double median(std::size_t count) const {
    std::vector<double> sorted(errors_.begin(), errors_.begin() + static_cast<long>(count));
    std::sort(sorted.begin(), sorted.end());
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  }
  [[nodiscard]] double median() const { return median(errors_.size()); }
  [[nodiscard]] double largest() const { return *std::max_element(errors_.begin(), errors_.end()); }

 private:
  std::vector<double> errors_;
};

/// Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models".
struct Korthikanti {
  const char* name;
  const char* model;
  std::uint32_t pp, chunks, batch, micro_batch;
  double state_gib, plain_gib, selective_gib;  ///< Figure 1
  /// Figure 7: percent of tensor parallelism without recomputation.
  double sp, selective, sp_selective, full;
};
constexpr Korthikanti kKorthikanti[] = {
    {"22B", "megatron-22b", 1, 1, 4, 4, 45.5625, 59.25, 9.5625, 66.84, 49.42, 16.18, 7.64},
    {"175B", "gpt3-175b", 8, 3, 64, 1, 45.5625, 66.84375, 12.3515625, 62.04, 56.53, 18.49, 8.71},
    {"530B", "megatron-529.6b", 35, 3, 280, 1, 31.640625, 114.0234375, 23.076171875, 58.31, 62.04,
     20.27, 9.42},
    {"1T", "megatron-1008b", 64, 1, 512, 1, 32.958984375, 131.25, 26.5625, 58.31, 62.04, 20.27,
     9.42}};

/// Activations of the first stage, TP 8: the blocks only, as the paper counts.
double first_stage_gib(const Korthikanti& row, AttentionScores scores, bool sequence_parallel,
                       bool recomputed) {
  DecoderShape shape = model(row.model);
  shape.scores = scores;
  shape.micro_batch_size = row.micro_batch;
  const Job job = job_of(build_decoder(shape).value());
  const auto cost = make_cost_model(job);
  const LayerTable table(job, *cost, {0, 8, sequence_parallel});
  const std::uint32_t each = shape.layers / (row.pp * row.chunks);
  double most = 0;
  for (const auto& moment : held_chunks(row.chunks > 1 ? Schedule::kInterleaved : Schedule::k1f1b,
                                        row.pp, row.chunks, 0, row.batch / row.micro_batch)) {
    double held = 0;
    for (std::uint32_t c = 0; c < row.chunks; ++c) {
      const std::uint32_t first = 1 + c * row.pp * each;
      const LayerCost sum = table.sum({first, first + each});
      held += moment[c] * (recomputed ? sum.input_bytes : sum.stash_bytes);
    }
    most = std::max(most, held);
  }
  return most / kGiB;
}

TEST(PublishedMemory, FormulaValuesOfKorthikantiComeOutExactly) {
  for (const Korthikanti& row : kKorthikanti) {
    SCOPED_TRACE(row.name);
    DecoderShape shape = model(row.model);
    shape.biases = false;  // its figure counts the 12 h^2 of the matrices
    Graph graph = build_decoder(shape).value();
    for (OpNode& op : graph.nodes) {
      op.param_bytes = op.kind == OpKind::kNorm ? 0 : op.param_bytes;
    }
    Job job = job_of(std::move(graph));
    job.zero_stage = 0;
    const auto cost = make_cost_model(job);
    const LayerTable table(job, *cost, {0, 8, false});
    EXPECT_NEAR(table.sum({1, 1 + shape.layers / row.pp}).params *
                    memory_rule(job, 0, 1).state_bytes_per_param / kGiB,
                row.state_gib, 1e-9);

    const double plain = first_stage_gib(row, AttentionScores::kStored, false, false);
    EXPECT_NEAR(plain, row.plain_gib, 1e-9);
    const double both = first_stage_gib(row, AttentionScores::kRecomputed, true, false);
    EXPECT_NEAR(both, row.selective_gib, 1e-9);

    // The bars of Figure 7 are within 0.14 points of the paper's own closed formulas.
    const auto percent = [&](double gib) { return gib / plain * 100; };
    EXPECT_NEAR(percent(first_stage_gib(row, AttentionScores::kStored, true, false)), row.sp, 0.15);
    EXPECT_NEAR(percent(first_stage_gib(row, AttentionScores::kRecomputed, false, false)),
                row.selective, 0.15);
    EXPECT_NEAR(percent(both), row.sp_selective, 0.15);
    EXPECT_NEAR(percent(first_stage_gib(row, AttentionScores::kStored, false, true)), row.full,
                0.15);
  }
}

enum Model { kLlama70b, kLlama405b, kDeepSeekV2, kDeepSeekV3, kOpt350, kGptNeo };

/// MooreThreads/SimuMax 4dcaae5, docs/b200/b200_release_v1.2_summary.json: truncated models on one
/// server of 8 B200, Megatron-core, bf16, distributed optimizer, no recomputation, micro-batch 1.
/// MiB are the largest over the ranks that PyTorch's allocator had given out.
struct B200Run {
  Model model;
  std::uint32_t layers, tp, pp, dp, ep, cp, sequence, microbatches;
  double allocated_mib;
};

TEST(MeasuredMemory, AllocatedBytesOfMegatronRunsOnB200) {
  const std::vector<B200Run> runs = {
      // clang-format off
      {kLlama70b, 12, 1, 2, 4, 1, 1, 4096, 4, 68149.2},
      {kLlama70b, 12, 4, 1, 2, 1, 1, 4096, 4, 40009.8},
      {kDeepSeekV2, 4, 1, 1, 8, 8, 1, 4096, 4, 46730.0},
      {kDeepSeekV2, 4, 1, 2, 4, 4, 1, 4096, 4, 45775.8},
      {kDeepSeekV3, 4, 1, 2, 4, 4, 1, 4096, 4, 116737.9},
      {kLlama70b, 12, 2, 1, 4, 1, 1, 4096, 8, 62136.4},
      {kLlama70b, 12, 4, 1, 2, 1, 1, 4096, 8, 40009.8},
      {kDeepSeekV2, 4, 1, 1, 8, 8, 1, 4096, 8, 46730.0},
      {kDeepSeekV3, 4, 1, 1, 8, 8, 1, 4096, 8, 106803.8},
      {kDeepSeekV3, 4, 1, 2, 4, 4, 1, 4096, 8, 116737.9},
      {kLlama70b, 12, 2, 1, 4, 1, 1, 4096, 32, 62136.4},
      {kLlama70b, 12, 8, 1, 1, 1, 1, 4096, 32, 28965.4},
      {kDeepSeekV2, 4, 1, 1, 8, 8, 1, 4096, 32, 46730.0},
      {kDeepSeekV3, 4, 1, 1, 8, 8, 1, 4096, 32, 106803.8},
      {kLlama405b, 4, 1, 2, 4, 1, 1, 4096, 4, 89173.4},
      {kLlama405b, 4, 2, 1, 4, 1, 1, 4096, 4, 83549.9},
      {kLlama405b, 4, 8, 1, 1, 1, 1, 4096, 4, 39499.8},
      {kLlama405b, 4, 2, 1, 4, 1, 1, 4096, 8, 83549.9},
      {kLlama405b, 4, 4, 1, 2, 1, 1, 4096, 8, 54158.1},
      {kLlama405b, 4, 1, 2, 4, 1, 1, 4096, 32, 89173.4},
      {kLlama405b, 4, 4, 1, 2, 1, 1, 4096, 32, 54158.1},
      {kLlama405b, 4, 8, 1, 1, 1, 1, 4096, 32, 39499.8},
      {kLlama70b, 12, 1, 1, 1, 1, 8, 32768, 4, 107017.1},
      {kLlama405b, 4, 1, 1, 1, 1, 8, 32768, 4, 142557.5},
      {kLlama70b, 12, 2, 1, 1, 1, 4, 131072, 4, 115372.0},
      {kLlama405b, 4, 2, 1, 1, 1, 4, 131072, 4, 120962.5},
      // clang-format on
  };
  const char* const names[] = {"llama3-70b", "llama3-405b", "deepseek-v2", "deepseek-v3"};
  Errors errors;
  for (const B200Run& run : runs) {
    DecoderShape shape = model(names[run.model]);
    shape.layers = run.layers;
    shape.kv_heads = run.model == kLlama405b ? 16 : shape.kv_heads;  // padded for its tests
    shape.experts.dense_layers = shape.experts.count > 0 ? 1 : 0;
    // Context parallelism cuts the sequence and shares the optimizer, as more replicas do.
    shape.sequence_length = run.sequence / run.cp;
    const Graph whole = build_decoder(shape).value();
    const Sharding sharding{0, static_cast<std::uint16_t>(run.tp), run.tp > 1};
    const Split split{run.pp, {}};
    Graph rest = whole;
    Graph experts = whole;
    for (std::size_t k = 0; k < whole.nodes.size(); ++k) {
      const bool expert = whole.nodes[k].kind == OpKind::kMoe;
      rest.nodes[k].param_bytes *= expert ? 0 : 1;
      experts.nodes[k].param_bytes *= expert ? 1.0 / run.ep : 0;
    }
    double bytes = 0;
    if (shape.experts.count == 0) {
      bytes = peak_bytes(job_of(whole), sharding, run.dp * run.cp, split, run.microbatches);
    } else {
      // Each rank holds 1/ep of the experts, and ep ranks share nothing of their state: only the
      // replicas beyond them do. Routed tokens are as many per rank as without expert parallelism.
      for (OpNode& op : experts.nodes) {
        op.act_bytes = op.work_bytes = op.out_bytes = 0;
      }
      experts.edges.clear();
      const Job dense_job = job_of(rest);
      const Job expert_job = job_of(experts);
      const auto dense_cost = make_cost_model(dense_job);
      const auto expert_cost = make_cost_model(expert_job);
      const LayerTable dense(dense_job, *dense_cost, sharding);
      const LayerTable sparse(expert_job, *expert_cost, sharding);
      const std::vector<bool> nothing(dense.layers(), false);
      for (std::uint32_t s = 0; s < run.pp; ++s) {
        const LayerRange range = stage_of(split, s, dense.layers());
        bytes = std::max(
            bytes,
            stage_memory_bytes(dense, memory_rule(dense_job, 0, run.dp), range,
                               in_flight(Schedule::k1f1b, run.pp, s, run.microbatches), nothing) +
                stage_memory_bytes(sparse, memory_rule(expert_job, 0, run.dp / run.ep), range, 0,
                                   nothing));
      }
    }
    errors.add(fmt::format("{} x{} tp{} pp{} dp{} ep{} cp{} s{} m{}", names[run.model], run.layers,
                           run.tp, run.pp, run.dp, run.ep, run.cp, run.sequence, run.microbatches),
               bytes, run.allocated_mib * kMiB);
  }
  fmt::print("  median {:.2f} %, largest {:.2f} %\n", errors.median() * 100,
             errors.largest() * 100);
  EXPECT_LE(errors.median(), 0.012);
  EXPECT_LE(errors.largest(), 0.04);
}

/// eth-easl/sailor cf2c8e3: fp32 training with TP inside a server; what one device of a TP group
/// holds of each layer, in numbers (not bytes) and for one sample: {layers alike, parameters,
/// activations}.
struct SailorLayers {
  std::uint32_t count;
  double parameters, activations;
};
const std::map<std::pair<Model, std::uint32_t>, std::vector<SailorLayers>>& sailor_models() {
  static const std::map<std::pair<Model, std::uint32_t>, std::vector<SailorLayers>> models = {
      // clang-format off
      {{kOpt350, 2}, {{1, 27918336, 2101760}, {24, 6301184, 48238592}, {1, 25823232, 105913088}}},
      {{kOpt350, 4}, {{1, 15073280, 2101760}, {1, 3153664, 27398144}, {23, 3153664, 27267072}, {1, 12978176, 54532864}}},
      {{kOpt350, 8}, {{1, 8650752, 2101760}, {24, 1579904, 16781312}, {1, 6555648, 28318464}}},
      {{kGptNeo, 2}, {{1, 69795840, 6558208}, {32, 39345920, 97001472}, {1, 5120, 10492672}}},
      {{kGptNeo, 4}, {{1, 37683200, 6558208}, {1, 19680640, 60563456}, {31, 19680640, 61087744}, {1, 5120, 10492672}}},
      // clang-format on
  };
  return models;
}

Job sailor_job(Model which, std::uint32_t tp, std::uint32_t micro_batch) {
  Graph graph;
  graph.name = "sailor";
  graph.micro_batch_size = micro_batch;
  std::uint32_t layer = 0;
  for (const SailorLayers& kind : sailor_models().at({which, tp})) {
    for (std::uint32_t k = 0; k < kind.count; ++k, ++layer) {
      OpNode op;
      op.id = op.layer = layer;
      op.name = "layer";
      op.fwd_flops = 1;
      op.param_bytes = 4 * kind.parameters;
      op.act_bytes = 4 * kind.activations * micro_batch;
      op.work_bytes = op.act_bytes;  // gradients of what was kept
      graph.nodes.push_back(op);
    }
  }
  graph.nodes.back().kind = OpKind::kHead;
  Job job = job_of(std::move(graph));
  job.dtype = "fp32";
  job.bytes_per_param = 4;
  job.gradient_bytes_per_param = 8;  // the gradient, and its copy in the buffer that is reduced
  job.optimizer_bytes_per_param = 8;
  job.zero_stage = 0;
  return job;
}

enum Site { kGraceHopper, kConsumer };

/// Bytes in use on the device, not the allocator's count: whole MiB, with what CUDA, NCCL and the
/// allocator's reserve take. Those of Grace Hopper come first.
struct SailorRun {
  const char* name;
  Model model;
  Site site;
  std::uint32_t tp;
  std::vector<std::uint32_t> layers;  ///< of each stage
  std::uint32_t micro_batch, microbatches;
  double used_bytes;
};
// What CUDA and NCCL hold on a device of each site, the median over its runs: the only fitted
// numbers. The allocator's reserve is the job file's default of 6 %.
constexpr double kFixedBytes[] = {4.37e9, 2.86e9};
constexpr double kReserve = 0.06;

TEST(MeasuredMemory, UsedBytesOfSailorsRuns) {
  const std::vector<SailorRun> runs = {
      // clang-format off
      {"GPT-NEO/N16/N16_D4", kGptNeo, kGraceHopper, 4, {7, 9, 9, 9}, 4, 64, 37281071104},
      {"GPT-NEO/N16/N16_D8", kGptNeo, kGraceHopper, 4, {16, 18}, 4, 32, 44033900544},
      {"GPT-NEO/N2/N2_D1", kGptNeo, kGraceHopper, 4, {16, 18}, 1, 1, 16258170880},
      {"GPT-NEO/N32/N32_D16", kGptNeo, kGraceHopper, 4, {16, 18}, 4, 16, 44776292352},
      {"GPT-NEO/N32/N32_D8", kGptNeo, kGraceHopper, 4, {7, 9, 9, 9}, 4, 32, 37493932032},
      {"GPT-NEO/N4/N4_D1", kGptNeo, kGraceHopper, 4, {7, 9, 9, 9}, 1, 64, 15817768960},
      {"GPT-NEO/N4/N4_D2", kGptNeo, kGraceHopper, 4, {16, 18}, 1, 32, 20011024384},
      {"GPT-NEO/N4/N4_D4", kOpt350, kGraceHopper, 4, {26}, 4, 8, 19570622464},
      {"GPT-NEO/N64/N64_D16", kGptNeo, kGraceHopper, 4, {7, 9, 9, 9}, 4, 16, 37381734400},
      {"GPT-NEO/N64/N64_D8", kGptNeo, kGraceHopper, 4, {3, 5, 5, 5, 4, 4, 4, 4}, 4, 32, 43010490368},
      {"GPT-NEO/N8/N8_D2", kGptNeo, kGraceHopper, 4, {7, 9, 9, 9}, 4, 128, 28541190144},
      {"GPT-NEO/N8/N8_D4", kGptNeo, kGraceHopper, 4, {16, 18}, 4, 64, 43814748160},
      {"OPT-350/N1/N1_D1_M4_G1", kOpt350, kGraceHopper, 4, {26}, 1, 1, 9551478784},
      {"OPT-350/N1/N1_D1_M4_G32", kOpt350, kGraceHopper, 4, {26}, 1, 32, 9805234176},
      {"OPT-350/N16/N16_D16", kOpt350, kGraceHopper, 4, {26}, 8, 8, 32560381952},
      {"OPT-350/N16/N16_D4", kOpt350, kGraceHopper, 4, {5, 7, 7, 7}, 8, 32, 25140658176},
      {"OPT-350/N16/N16_D8", kOpt350, kGraceHopper, 4, {12, 14}, 8, 16, 26941063168},
      {"OPT-350/N2/N2_D1", kOpt350, kGraceHopper, 4, {12, 14}, 8, 4, 26942111744},
      {"OPT-350/N2/N2_D2", kOpt350, kGraceHopper, 4, {26}, 2, 8, 12540968960},
      {"OPT-350/N32/N32_D16", kOpt350, kGraceHopper, 4, {12, 14}, 8, 8, 26960986112},
      {"OPT-350/N32/N32_D32", kOpt350, kGraceHopper, 4, {26}, 8, 4, 32996589568},
      {"OPT-350/N32/N32_D8", kOpt350, kGraceHopper, 4, {5, 7, 7, 7}, 8, 16, 25218252800},
      {"OPT-350/N4/N4_D1", kOpt350, kGraceHopper, 4, {5, 7, 7, 7}, 1, 64, 7358906368},
      {"OPT-350/N4/N4_D2", kOpt350, kGraceHopper, 4, {12, 14}, 1, 32, 7976517632},
      {"OPT-350/N4/N4_D4", kOpt350, kGraceHopper, 4, {26}, 4, 8, 19244515328},
      {"OPT-350/N8/N8_D2", kOpt350, kGraceHopper, 4, {5, 7, 7, 7}, 8, 32, 25248661504},
      {"OPT-350/N8/N8_D4", kOpt350, kGraceHopper, 4, {12, 14}, 8, 16, 26850885632},
      {"N2/N2_D1", kOpt350, kConsumer, 2, {12, 14}, 2, 128, 4130340864},
      {"N2/N2_D2", kOpt350, kConsumer, 2, {26}, 2, 64, 5946474496},
      {"N3/N3_D1", kOpt350, kConsumer, 8, {8, 9, 9}, 2, 72, 6305087488},
      {"N4/N4_D1", kOpt350, kConsumer, 8, {5, 7, 7, 7}, 2, 128, 6233784320},
      {"N4/N4_D2", kOpt350, kConsumer, 8, {12, 14}, 2, 64, 6818889728},
      {"N4/N4_D4", kOpt350, kConsumer, 8, {26}, 2, 32, 9387900928},
      {"N6/N6_D2", kOpt350, kConsumer, 8, {8, 9, 9}, 2, 72, 6305087488},
      {"N6/N6_D3", kOpt350, kConsumer, 8, {12, 14}, 2, 48, 6835666944},
      {"N6/N6_D6", kOpt350, kConsumer, 8, {26}, 2, 24, 9371123712},
      // clang-format on
  };
  Errors errors;
  std::size_t grace_hopper = 0;
  for (const SailorRun& run : runs) {
    const double bytes =
        peak_bytes(sailor_job(run.model, run.tp, run.micro_batch), {0, 1, false}, 1,
                   {static_cast<std::uint32_t>(run.layers.size()), run.layers}, run.microbatches);
    const double used = kFixedBytes[run.site] + (1 + kReserve) * bytes;
    errors.add(run.name, used, run.used_bytes);
    grace_hopper += run.site == kGraceHopper ? 1 : 0;
  }
  fmt::print("  median {:.2f} %, on Grace Hopper {:.2f} %\n", errors.median() * 100,
             errors.median(grace_hopper) * 100);
  EXPECT_LE(errors.median(), 0.012);
  EXPECT_LE(errors.median(grace_hopper), 0.006);
}

}  // namespace
}  // namespace tapas::solver
