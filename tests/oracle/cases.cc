#include "base/json/json.h"
#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"
#include "solver/cost/stage_fit.h"
#include "solver/search/solve.h"
#include "tests/unit/solver/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

// Prints mid-size cases of the document objective as JSON: the costs of every layer under every
// sharding, the limits, and the objective that the search calls least.

namespace tapas::solver {
namespace {

constexpr std::uint64_t kCases = 12;

Job case_job(std::uint64_t seed) {
  testing::Draw draw(seed);
  Job job = testing::uneven_job(seed, draw.between(9U, 12U), 1, 8, draw.between(4U, 12U));
  job.search.model = CostModelKind::kDocument;
  job.search.stage_widths = true;
  job.search.tp_widths = {1, 2, 4};
  job.search.min_stages = job.search.max_stages = draw.between(3U, 4U);
  job.search.weights = {0, draw.between(0.0, 0.1), draw.between(0.5, 1.0)};
  job.limits.memory_reserve_ratio = 0;
  job.limits.recompute_ratio = 0.25;
  double params = 0;
  double stash = 0;
  for (const OpNode& op : job.graph.nodes) {
    params += op.param_bytes;
    stash += op.act_bytes;
  }
  job.limits.device_memory_bytes = (params / 2 * 18 + 2 * stash) / 4 * draw.between(0.55, 1.2);
  for (OpEdge& edge : job.graph.edges) {
    edge.bytes *= draw.between(0.5, 20.0);
  }
  return job;
}

/// What a MILP has to choose from, for one replica count with or without sequence parallelism.
json::Value problem_of(const Job& job, const CostModel& model, std::uint32_t replicas,
                       bool sequence_parallel) {
  const std::uint32_t stages = job.search.max_stages;
  const std::uint32_t m = (job.total_microbatches() + replicas - 1) / replicas;
  const MemoryRule rule = memory_rule(job, 0, replicas);
  json::Value held = json::Value::array();
  for (std::uint32_t s = 0; s < stages; ++s) {
    held.push_back(in_flight(job.schedule, stages, s, m));
  }
  json::Value kinds = json::Value::array();
  json::Value sending = json::Value::array();
  for (const std::uint32_t width : job.search.tp_widths) {
    const Sharding sharding{0, static_cast<std::uint16_t>(width), sequence_parallel};
    const LayerTable table(job, model, sharding);
    const StepTail tail = model.step_tail({}, sharding);
    json::Value layers = json::Value::array();
    sending = json::Value::array();
    for (std::uint32_t l = 0; l < table.layers(); ++l) {
      const LayerCost& cost = table[l];
      layers.push_back({{"forward", cost.times.forward_s + cost.times.forward_comm_s},
                        {"backward", cost.times.backward_s + cost.times.backward_comm_s},
                        {"params", cost.params},
                        {"stash", cost.stash_bytes},
                        {"input", cost.input_bytes},
                        {"scratch", cost.work_bytes - cost.gradient_bytes},
                        {"gradient", cost.gradient_bytes},
                        {"forward_flops", cost.forward_flops},
                        {"flops", cost.flops},
                        {"tp_comm", tail.sync_s(cost.params)}});
      sending.push_back(
          2 *
          model.hop(link_inside(job.cluster.node_types[0]), sharding, table.cut_bytes(l), stages)
              .busy_s);
    }
    kinds.push_back({{"width", width}, {"layers", std::move(layers)}});
  }
  return {{"devices", job.cluster.node_types[0].devices / replicas},
          {"held", std::move(held)},
          {"state_bytes_per_param", rule.state_bytes_per_param},
          {"capacity", rule.capacity_bytes},
          {"recompute_ratio", rule.recompute_ratio},
          {"kinds", std::move(kinds)},
          {"pp_comm", std::move(sending)}};
}

}  // namespace
}  // namespace tapas::solver

int main() {
  using namespace tapas;
  using namespace tapas::solver;
  json::Value cases = json::Value::array();
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const Job job = case_job(seed);
    const auto outcome = solve(job);
    const auto model = make_cost_model(job);
    json::Value problems = json::Value::array();
    for (std::uint32_t d = 1; d * job.search.max_stages <= job.cluster.node_types[0].devices &&
                              d <= job.total_microbatches();
         ++d) {
      for (const bool sequence_parallel : {false, true}) {
        problems.push_back(problem_of(job, *model, d, sequence_parallel));
      }
    }
    json::Value item;
    item["seed"] = seed;
    item["stages"] = job.search.max_stages;
    item["communication_per_s"] = job.search.weights.communication_per_s;
    item["stage_time_per_s"] = job.search.weights.stage_time_per_s;
    item["problems"] = std::move(problems);
    item["objective"] =
        outcome ? json::Value(outcome->certificate.objective) : json::Value(nullptr);
    item["optimal"] = outcome && outcome->certificate.optimal;
    cases.push_back(std::move(item));
  }
  fmt::print("{}\n", json::dump(cases));
  return 0;
}
