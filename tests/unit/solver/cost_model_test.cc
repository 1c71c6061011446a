#include "solver/cost/cost_model.h"

#include "jobs.h"
#include "solver/check/check_memory.h"
#include "solver/cost/collectives.h"
#include "solver/cost/document_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/cost/predict.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tapas::solver {
namespace {

constexpr std::uint32_t kBlock = 5;  // any transformer block of the 175B graph
constexpr double kSbh = 2048.0 * 12288.0;

LayerTable table_of(const Job& job, const Sharding& sharding) {
  const auto model = make_cost_model(job);
  return {job, *model, sharding};
}

TEST(PhysicalModel, ComputesAMatrixProductByTheEfficiencyCurve) {
  Job job = testing::uneven_job(1, 2, 1, 8, 8);
  job.graph.nodes.resize(2);  // layer 0: norm and up
  job.graph.edges.resize(1);
  const DeviceType& device = job.cluster.device_types[0];
  const OpNode& norm = job.graph.nodes[0];
  const OpNode& up = job.graph.nodes[1];
  const double flops = up.fwd_flops / 4;
  const double efficiency = device.matmul_efficiency * flops / (flops + device.matmul_half_flops);
  const double memory = device.memory_bytes_per_s * device.memory_efficiency;
  const double product = flops / (device.peak_flops * efficiency);
  const auto forward_s = [&] {
    return make_cost_model(job)->layer_times(0, {0, 4, false}).forward_s;
  };
  EXPECT_NEAR(forward_s(), product + 2 * norm.out_bytes / memory, 1e-12);
  job.graph.nodes[0].fwd_moved_bytes = 7e6;  // given bytes take the place of the kind's passes
  job.graph.nodes[1].fwd_moved_bytes = 3e6;  // and are added to a product, divided as it is
  EXPECT_NEAR(forward_s(), product + (7e6 + 3e6 / 4) / memory, 1e-12);
}

TEST(PhysicalModel, NeverOutrunsTheHostThatLaunches) {
  Job job = testing::uneven_job(1, 2, 1, 8, 8);
  DeviceType& device = job.cluster.device_types[0];
  device.operator_launch_s = 0;
  const Sharding sharding{0, 4, false};
  const LayerTimes free = make_cost_model(job)->layer_times(0, sharding);
  device.operator_launch_s = (free.forward_s + free.forward_comm_s) / 3 * 1.5;  // three operators
  const LayerTimes bound = make_cost_model(job)->layer_times(0, sharding);
  EXPECT_EQ(bound.forward_comm_s, free.forward_comm_s);
  EXPECT_NEAR(bound.forward_s + bound.forward_comm_s, 3 * device.operator_launch_s, 1e-12);
  EXPECT_EQ(bound.backward_s, free.backward_s) << "long enough by itself";
}

TEST(PhysicalModel, TakesMeasuredTimesAsTheyAre) {
  Job job = testing::uneven_job(1, 2, 1, 8, 8);
  const DeviceType& device = job.cluster.device_types[0];
  const Sharding sharding{0, 4, false};
  const LayerTimes before = make_cost_model(job)->layer_times(0, sharding);
  for (OpNode& op : job.graph.nodes) {
    op.measured = {{.device = device.name, .tp_width = 4, .forward_s = 0.25, .backward_s = 0.5}};
  }
  LayerTimes times = make_cost_model(job)->layer_times(0, sharding);
  EXPECT_EQ(times.forward_s, 3 * 0.25);
  EXPECT_EQ(times.backward_s, 3 * 0.5);
  EXPECT_EQ(times.forward_comm_s, before.forward_comm_s) << "the model's own when not measured";
  job.graph.nodes[2].measured[0].forward_comm_s = 0.125;
  times = make_cost_model(job)->layer_times(0, sharding);
  EXPECT_EQ(times.forward_comm_s, 0.125);
}

TEST(PhysicalModel, ReducesActivationsTwiceForwardAndTwiceBackward) {
  Job job = testing::gpt3_175b_on_1024();
  const CommTable comm = comm_table(job.cluster.node_types[0]);
  job.cluster.device_types[0].collective_launch_s = 5e-5;
  const auto seconds = [&](Collective op) {
    return collective_time_s(comm, op, 2 * kSbh, {1, 8}) + 5e-5;
  };
  const auto times = [&](std::uint16_t width, bool sequence_parallel) {
    return make_cost_model(job)->layer_times(kBlock, {0, width, sequence_parallel});
  };
  const double whole = seconds(Collective::kAllReduce);
  EXPECT_GT(whole, 2.0 * 7 / 8 * 2 * kSbh / job.cluster.node_types[0].fast_link_bytes_per_s);
  EXPECT_NEAR(times(8, false).forward_comm_s, 2 * whole, 1e-12);
  EXPECT_NEAR(times(8, false).backward_comm_s, 2 * whole, 1e-12);
  const double halves = seconds(Collective::kReduceScatter) + seconds(Collective::kAllGather);
  EXPECT_NEAR(times(8, true).forward_comm_s, 2 * halves, 1e-12);
  EXPECT_EQ(times(1, false).forward_comm_s, 0);
  job.overlap_tp = true;
  EXPECT_NEAR(times(8, true).forward_comm_s, 2 * halves / 8, 1e-12);
  EXPECT_NEAR(times(8, false).forward_comm_s, 2 * whole, 1e-12) << "not without the pieces";
}

TEST(LayerTable, StashesWhatKorthikantiCounts) {
  const Job job = testing::gpt3_175b_on_1024();
  const double softmax = 4.0 * 2048 * 96;  // one statistic per row and head, flash attention's
  EXPECT_NEAR(table_of(job, {0, 8, false})[kBlock].stash_bytes,
              (10 + 24.0 / 8) * kSbh + softmax / 8, 1);
  EXPECT_NEAR(table_of(job, {0, 8, true})[kBlock].stash_bytes, 34.0 / 8 * kSbh + softmax / 8, 1);
  EXPECT_NEAR(table_of(job, {0, 8, false})[kBlock].input_bytes, 2 * kSbh, 1);
}

TEST(LayerTable, SumsEqualTheLayersOneByOne) {
  const Job job = testing::uneven_job(5, 12, 1, 8, 8);
  const LayerTable table = table_of(job, {0, 2, true});
  for (std::uint32_t first = 0; first < 12; ++first) {
    for (std::uint32_t last = first + 1; last <= 12; ++last) {
      LayerCost sum;
      for (std::uint32_t l = first; l < last; ++l) {
        sum.times.forward_s += table[l].times.forward_s;
        sum.params += table[l].params;
      }
      const LayerCost fast = table.sum({first, last});
      EXPECT_NEAR(fast.times.forward_s, sum.times.forward_s, 1e-12);
      EXPECT_NEAR(fast.params, sum.params, 1e-3);
    }
  }
}

TEST(CutBytes, CountATensorUsedTwiceOnce) {
  Job job = testing::uneven_job(1, 3, 1, 8, 8);
  const double boundary = job.graph.nodes[2].out_bytes;
  EXPECT_EQ(cut_bytes(job.graph)[1], boundary);
  job.graph.edges.push_back({2, 7, boundary, "bf16"});  // also needed in layer 2
  EXPECT_EQ(cut_bytes(job.graph)[1], boundary);
  EXPECT_EQ(cut_bytes(job.graph)[2], 2 * boundary);
}

TEST(DocumentModel, FollowsTheWrittenEquations) {
  Job job = testing::gpt3_175b_on_1024();
  job.search.model = CostModelKind::kDocument;
  const auto model = make_cost_model(job);
  const NodeType& node = job.cluster.node_types[0];
  double flops = 0;
  for (const OpNode& op : job.graph.nodes) {
    flops += op.layer == kBlock ? op.fwd_flops : 0;
  }
  EXPECT_NEAR(model->layer_times(kBlock, {0, 8, false}).forward_s, flops / (312e12 * 8), 1e-12);
  const double size = 2 * kSbh;
  EXPECT_NEAR(2 * model->hop({}, {0, 8, false}, size, 16).busy_s,
              size * 2 * (1 - 1.0 / 16) / node.nic_bytes_per_s, 1e-12);
  const double params = 1e9;  // whole; each device holds an eighth
  EXPECT_NEAR(model->step_tail({}, {0, 8, false}).per_param_s * params / 8,
              2 * (2 + 4) * params * 7 / 8 / node.fast_link_bytes_per_s, 1e-9);
}

TEST(DocumentObjective, WeighsItsThreeTerms) {
  Job job = testing::gpt3_175b_on_1024();
  job.search.model = CostModelKind::kDocument;
  job.search.weights = {0, 0, 0};
  Plan plan = testing::simple_plan(job, {0, 49}, 8, 8);
  plan.predicted = predict(job, plan);
  EXPECT_EQ(document_objective(job, plan), 0);
  job.search.weights = {1, 0, 0};
  EXPECT_EQ(document_objective(job, plan),
            std::max(plan.predicted.stage_memory_bytes[0], plan.predicted.stage_memory_bytes[1]));
  job.search.weights = {0, 0, 2};
  EXPECT_EQ(document_objective(job, plan),
            2 * std::max(plan.predicted.stage_time_s[0], plan.predicted.stage_time_s[1]));
  job.search.weights = {0, 1, 0};
  double params = 0;
  for (const OpNode& op : job.graph.nodes) {
    params += op.param_bytes / 2;
  }
  const double expected =
      2 * (2 + 4) * params * 7 / 8 / 160e9 + 2 * kSbh * 2 * (1 - 1.0 / 2) / 25e9;
  EXPECT_NEAR(document_objective(job, plan), expected, 1e-3 * expected) << "norms are not split";
}

TEST(Predict, MemoryEqualsTheCheckersOwnFormula) {
  testing::Draw draw(21);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Job job = testing::uneven_job(seed, 8, 4, 8, 24);
    Plan plan = testing::simple_plan(job, {0, 2, 5}, 2, 2);
    plan.sp_width = seed % 2 == 0 ? 2 : 1;
    for (std::uint32_t l = 0; l < 8; ++l) {
      plan.checkpoint[l] = draw.between(0U, 1U) == 1;
    }
    const Prediction p = predict(job, plan);
    const MemoryCheck check(job);
    for (std::uint32_t s = 0; s < 3; ++s) {
      const LayerRange range = stage_layers(plan, 0, s, 8);
      EXPECT_NEAR(p.stage_memory_bytes[s],
                  check.stage_bytes(plan, plan.placement[0][s], plan.checkpoint, range, 3 - s),
                  1e-9 * p.stage_memory_bytes[s]);
    }
  }
}

TEST(Predict, SlowDeviceSlowsComputeOfItsStageOnly) {
  const Job job = testing::small_job(6, 2, 8, 16);
  const Plan plan = testing::simple_plan(job, {0, 4}, 1, 8);
  ClusterState state;
  state.device_slowdown.assign(16, 1);
  state.device_slowdown[8 + 3] = 2;  // one device of the second node holds its whole group back
  const Prediction healthy = predict(job, plan);
  const Prediction slow = predict(job, plan, state);
  const StageCompute compute = stage_compute(job, plan)[0][1];
  EXPECT_EQ(slow.stage_time_s[0], healthy.stage_time_s[0]);
  EXPECT_NEAR(slow.stage_time_s[1] - healthy.stage_time_s[1],
              compute.forward_s + compute.backward_s, 1e-12);
  EXPECT_GT(slow.step_time_s, healthy.step_time_s);
}

TEST(Predict, RecomputationAddsTheForwardAgain) {
  const Job job = testing::small_job(6, 2, 8, 16);
  Plan plan = testing::simple_plan(job, {0, 4}, 1, 8);
  const StageCompute before = stage_compute(job, plan)[0][0];
  plan.checkpoint[1] = true;
  const StageCompute after = stage_compute(job, plan)[0][0];
  EXPECT_EQ(after.forward_s, before.forward_s);
  EXPECT_NEAR(after.backward_s - before.backward_s,
              make_cost_model(job)->layer_times(1, {0, 8, false}).forward_s, 1e-12);
}

}  // namespace
}  // namespace tapas::solver
