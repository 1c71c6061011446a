#include "solver/cost/breakdown.h"

#include "solver/cost/plan_evaluator.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tapas::solver {
namespace {

using testing::Draw;

/// Some valid shape of plan for an uneven job; schedules, recomputation and overlap all occur.
struct Case {
  Job job;
  Plan plan;
  ClusterState state;
};

Case random_case(std::uint64_t seed) {
  Draw draw(seed);
  const std::uint32_t layers = draw.between(4U, 12U);
  Case c;
  c.job = testing::uneven_job(seed, layers, 4, 4, 24);
  c.job.schedule = draw.between(0U, 1U) == 0 ? Schedule::k1f1b : Schedule::kGpipe;
  c.job.overlap_gradients = draw.between(0U, 1U) == 0;
  c.job.zero_stage = draw.between(0U, 1U);
  c.job.search.model =
      draw.between(0U, 3U) == 0 ? CostModelKind::kDocument : CostModelKind::kPhysical;
  const std::uint32_t stages = draw.between(1U, 4U);
  std::vector<std::uint32_t> cuts;
  for (std::uint32_t s = 0; s < stages; ++s) {
    cuts.push_back(s * layers / stages);
  }
  const std::uint16_t width = draw.between(0U, 1U) == 0 ? 1 : 2;
  c.plan = testing::simple_plan(c.job, cuts, draw.between(1U, 2U), width);
  c.plan.schedule = c.job.schedule;
  for (std::uint32_t l = 0; l < layers; ++l) {
    c.plan.checkpoint[l] = draw.between(0U, 2U) == 0;
  }
  c.plan.replica_checkpoint.resize(c.plan.replicas());
  c.plan.replica_checkpoint.back().assign(layers, draw.between(0U, 1U) == 0);
  c.state.device_slowdown.assign(c.job.cluster.device_count(), 1.0);
  c.state.device_slowdown[draw.between(0U, c.job.cluster.device_count() - 1)] = 1.7;
  c.state.node_links.assign(c.job.cluster.nodes.size(), {1.2, 1.4, 2.5});
  return c;
}

TEST(Breakdown, AddsUpToTheStepOfEveryGroup) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Case c = random_case(seed);
    PlanEvaluator evaluator(c.job);
    const double step = evaluator.step_time_s(c.plan, c.state);
    const Breakdown parts = break_down(c.job, c.plan, c.state);
    EXPECT_NEAR(parts.step_time_s, step, step * 1e-12);
    ASSERT_EQ(parts.seconds.size(), c.plan.replicas());
    for (const auto& replica : parts.seconds) {
      for (const GroupSeconds& group : replica) {
        EXPECT_NEAR(group.total(), step, step * 1e-9) << seed;
        for (const double part : {group.forward, group.backward, group.recompute, group.tp_comm,
                                  group.pp_comm, group.wait, group.dp_sync, group.update}) {
          EXPECT_GE(part, -step * 1e-9) << seed;
        }
      }
    }
  }
}

TEST(Breakdown, AddsUpToTheMemoryOfEveryGroup) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Case c = random_case(seed);
    PlanEvaluator evaluator(c.job);
    const Breakdown parts = break_down(c.job, c.plan);
    for (std::uint32_t r = 0; r < c.plan.replicas(); ++r) {
      for (std::uint32_t g = 0; g < c.plan.stages(); ++g) {
        const GroupBytes& bytes = parts.bytes[r][g];
        const double whole = evaluator.memory_bytes(c.plan, r, g);
        EXPECT_NEAR(bytes.total(), whole, whole * 1e-9);
        for (const double part : {bytes.parameters, bytes.gradients, bytes.optimizer,
                                  bytes.activations, bytes.recompute, bytes.scratch}) {
          EXPECT_GE(part, -whole * 1e-9) << seed;
        }
        EXPECT_NEAR(bytes.capacity + bytes.reserve, 80e9, 1);
      }
    }
  }
}

// Equal stages, no transfers, one replica: (p - 1) forwards and backwards of a group's step are
// waiting, the published bubble.
TEST(Breakdown, FindsTheBubbleOfEqualStages) {
  Job job = testing::uneven_job(3, 8, 4, 4, 24);
  for (OpNode& op : job.graph.nodes) {
    const OpNode& like = job.graph.nodes[op.id % 3];
    op.fwd_flops = like.fwd_flops;
    op.bwd_flops = like.bwd_flops;
    op.out_bytes = like.out_bytes;
  }
  for (OpEdge& edge : job.graph.edges) {
    edge.bytes = 0;
  }
  job.cluster.tor.latency_s = 0;
  job.cluster.pod.latency_s = 0;
  job.cluster.core.latency_s = 0;
  const Plan plan = testing::simple_plan(job, {0, 2, 4, 6}, 1, 1);
  PlanEvaluator evaluator(job);
  const Pipeline pipeline = evaluator.pipeline_of(plan, 0, {});
  const double once = pipeline.forward_s[0] + pipeline.backward_s[0];
  ASSERT_NEAR(pipeline.forward_s[3] + pipeline.backward_s[3], once, once * 1e-6);
  const Breakdown parts = break_down(job, plan);
  double longest_update = 0;
  for (const GroupSeconds& group : parts.seconds[0]) {
    longest_update = std::max(longest_update, group.update);
  }
  for (const GroupSeconds& group : parts.seconds[0]) {
    EXPECT_NEAR(group.wait + group.pp_comm - (longest_update - group.update), 3 * once,
                once * 0.01);
  }
}

TEST(Timeline, HasEveryForwardAndBackwardOnce) {
  const Case c = random_case(11);
  const ReplicaTimeline timeline = replica_timeline(c.job, c.plan, 0, c.state);
  EXPECT_EQ(timeline.actions.size(), 2U * c.plan.pp_splits.size() * c.plan.microbatches[0]);
  EXPECT_EQ(timeline.recompute_share.size(), c.plan.pp_splits.size());
  for (const Action& action : timeline.actions) {
    EXPECT_LE(action.start_s, action.end_s);
    EXPECT_LE(action.end_s, timeline.step_time_s * (1 + 1e-12));
  }
}

}  // namespace
}  // namespace tapas::solver
