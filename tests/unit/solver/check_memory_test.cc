#include "solver/check/check_memory.h"

#include "jobs.h"
#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/stage_fit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

/// Operators of every kind in a directed acyclic graph, some of them profiled.
Job any_job(std::uint64_t seed) {
  testing::Draw draw(seed);
  Job job = testing::small_job(1, 1, 8, 8);
  job.zero_stage = draw.between(0U, 1U);
  Graph graph;
  graph.name = "any";
  const std::uint32_t nodes = draw.between(6U, 30U);
  for (std::uint32_t k = 0; k < nodes; ++k) {
    OpNode op;
    op.id = k;
    op.name = "op";
    op.kind = static_cast<OpKind>(draw.between(0U, 7U));
    op.layer = k == 0 ? 0 : graph.nodes.back().layer + draw.between(0U, 1U);
    op.fwd_flops = draw.between(1e9, 1e12);
    op.param_bytes = draw.between(0U, 2U) == 0 ? 0 : draw.between(1e6, 1e9);
    op.act_bytes = draw.between(0.0, 1e9);
    op.work_bytes = draw.between(0.0, 1e9);
    op.out_bytes = draw.between(1e6, 1e8);
    if (draw.between(0U, 3U) == 0) {
      for (std::uint16_t width = 1; width <= 4; width = static_cast<std::uint16_t>(2 * width)) {
        MeasuredOp entry{.device = job.cluster.device_types[0].name, .tp_width = width};
        if (draw.between(0U, 1U) == 0) {
          entry.param_bytes = draw.between(0.0, 1e9);
        }
        if (draw.between(0U, 1U) == 0) {
          entry.act_bytes = draw.between(0.0, 1e9);
        }
        if (draw.between(0U, 1U) == 0) {
          entry.work_bytes = draw.between(0.0, 1e9);
        }
        op.measured.push_back(entry);
      }
    }
    for (std::uint32_t edges = k == 0 ? 0 : draw.between(1U, 2U); edges > 0; --edges) {
      graph.edges.push_back({draw.between(0U, k - 1), k, draw.between(1e6, 1e9), "bf16"});
    }
    graph.nodes.push_back(op);
  }
  EXPECT_TRUE(validate(graph));
  job.graph = std::move(graph);
  return job;
}

TEST(MemoryCheck, EqualsTheCostModelOnAnyGraph) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    testing::Draw draw(seed);
    const Job job = any_job(seed);
    const std::uint32_t layers = job.graph.layer_count();
    const auto width = static_cast<std::uint16_t>(1U << draw.between(0U, 2U));
    const bool sequence_parallel = width > 1 && draw.between(0U, 1U) == 1;
    Plan plan = testing::simple_plan(job, {0}, draw.between(1U, 8U / width), width);
    plan.sp_width = sequence_parallel ? width : 1;
    for (std::uint32_t l = 0; l < layers; ++l) {
      plan.checkpoint[l] = draw.between(0U, 2U) == 0;
    }
    const std::uint32_t first = draw.between(0U, layers - 1);
    const LayerRange range{first, draw.between(first + 1, layers)};
    const std::uint32_t held = draw.between(0U, 9U);

    const auto model = make_cost_model(job);
    const LayerTable table(job, *model, {0, width, sequence_parallel});
    const MemoryRule rule = memory_rule(job, 0, plan.replicas());
    const MemoryCheck check(job);
    const double expected = stage_memory_bytes(table, rule, range, held, plan.checkpoint);
    // The table's sums are differences of running totals over all layers.
    const double rounding = 1e-12 * stage_memory_bytes(table, rule, {0, layers}, held,
                                                       std::vector<bool>(layers, false));
    EXPECT_NEAR(check.stage_bytes(plan, plan.placement[0][0], plan.checkpoint, range, held),
                expected, rounding)
        << "seed " << seed;
    EXPECT_NEAR(check.params(plan.placement[0][0], range), table.sum(range).params, rounding);
    EXPECT_NEAR(check.state_bytes(plan, plan.placement[0][0], range),
                table.sum(range).params * rule.state_bytes_per_param, rounding);
  }
}

}  // namespace
}  // namespace tapas::solver
