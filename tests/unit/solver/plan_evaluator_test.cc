#include "solver/cost/plan_evaluator.h"

#include "jobs.h"
#include "solver/check/check_memory.h"
#include "solver/check/check_plan.h"
#include "solver/cost/links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

/// Equal replicas of `groups` device groups on nodes of 4 devices.
Plan interleaved_plan(const Job& job, testing::Draw& draw, std::uint32_t groups,
                      std::uint32_t chunks, std::uint32_t replicas, std::uint16_t width) {
  std::set<std::uint32_t> cuts{0};
  while (cuts.size() < groups * chunks) {
    cuts.insert(draw.between(1U, job.graph.layer_count() - 1));
  }
  std::vector<std::uint32_t> first(groups);
  for (std::uint32_t g = 0; g < groups; ++g) {
    first[g] = g;
  }
  Plan plan = testing::simple_plan(job, first, replicas, width);
  plan.pp_splits.assign(cuts.begin(), cuts.end());
  plan.interleave = chunks;
  return plan;
}

/// From the timelines: every layer's gradients are ready when all replicas have done its last
/// backward, and its stage's ring takes them one after the other.
double step_by_timeline(PlanEvaluator& evaluator, const Plan& plan, const ClusterState& state) {
  const Job& job = evaluator.job();
  const std::uint32_t layers = job.graph.layer_count();
  const std::vector<Ring> rings = replica_rings(job.cluster, plan, state);
  PipelineClock clock;
  double synchronised = 0;
  double update = 0;
  for (std::uint32_t g = 0; g < plan.stages(); ++g) {
    std::map<std::uint32_t, double> ready;  // by layer
    double finished = 0;
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      const Pipeline pipeline = evaluator.pipeline_of(plan, r, state);
      std::map<std::uint32_t, Action> last;
      for (const Action& a : clock.timeline(pipeline, plan.microbatches[r])) {
        if (!a.forward && a.stage % plan.stages() == g) {
          last[a.stage] = a;
          finished = std::max(finished, a.end_s);
        }
      }
      const double slow = evaluator.slowdown(state, plan.placement[r][g]);
      const double inside = state.links(plan.placement[r][g].node).inside;
      for (const auto& [k, action] : last) {
        const LayerTable& table = evaluator.table(evaluator.sharding_of(plan, r, k));
        const LayerRange range = stage_layers(plan, r, k, layers);
        double left = 0;  // time from the layer's gradients to the end of the backward
        for (std::uint32_t l = range.first; l < range.last; ++l) {
          ready[l] = std::max(ready[l], action.end_s - left);
          const LayerTimes& t = table[l].times;
          left += t.backward_s * slow + t.backward_comm_s * inside;
          left += plan.checkpoint_of(r)[l] ? t.forward_s * slow + t.forward_comm_s * inside : 0;
        }
      }
    }
    double params = 0;
    const Sharding sharding = evaluator.sharding_of(plan, 0, g);
    const StepTail tail = evaluator.model().step_tail(rings[g], sharding);
    std::vector<std::pair<std::uint32_t, double>> queue(ready.rbegin(), ready.rend());
    double ring_free = 0;
    for (const auto& [layer, at] : queue) {  // chunks and their layers from last to first
      const double of_layer = evaluator.table(sharding)[layer].params;
      params += of_layer;
      ring_free = std::max(ring_free, at) + (of_layer > 0 ? tail.sync_s(of_layer) : 0);
    }
    synchronised =
        std::max(synchronised, job.overlap_gradients ? ring_free : finished + tail.sync_s(params));
    update = std::max(update, tail.update_s(params));
  }
  return synchronised + update;
}

TEST(StepTime, IsThatOfTheTimelinesWithEveryStagesOwnTail) {
  testing::Draw draw(21);
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Job job = testing::uneven_job(seed, 12, 8, 4, 48);
    job.overlap_gradients = seed % 2 == 0;
    const std::uint32_t chunks = draw.between(1U, 3U);
    job.schedule = chunks > 1      ? Schedule::kInterleaved
                   : seed % 5 == 0 ? Schedule::kGpipe
                                   : Schedule::k1f1b;
    Plan plan = interleaved_plan(job, draw, draw.between(2U, 4U), chunks, 2, 4);
    plan.replica_checkpoint = {{}, std::vector<bool>(12)};
    for (std::uint32_t l = 0; l < 12; ++l) {
      plan.checkpoint[l] = draw.between(0U, 3U) == 0;
      plan.replica_checkpoint[1][l] = draw.between(0U, 3U) == 0;
    }
    const ClusterState state = testing::random_state(job.cluster, draw, 4);
    PlanEvaluator evaluator(job);
    const double step = evaluator.step_time_s(plan, state);
    EXPECT_NEAR(step, step_by_timeline(evaluator, plan, state), 1e-9 * step) << "seed " << seed;
  }
}

/// Every replica for itself, layer by layer, from what the cost model says of one layer.
double step_by_layers(PlanEvaluator& evaluator, const Plan& plan, const ClusterState& state) {
  const Job& job = evaluator.job();
  const CostModel& model = evaluator.model();
  const std::vector<Ring> rings = replica_rings(job.cluster, plan, state);
  PipelineClock clock;
  double synchronised = 0;
  double update = 0;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    Pipeline pipeline;
    std::vector<StepTail> tails;
    std::vector<double> params(plan.stages(), 0);
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const Position& position = plan.placement[r][s];
      const Sharding sharding{0, static_cast<std::uint16_t>(position.devices.size()), false};
      const LayerTable& table = evaluator.table(sharding);
      const double inside = state.node_links[position.node.value()].inside;
      double slow = 0;
      for (const std::uint16_t d : position.devices) {
        slow = std::max(slow, state.slowdown(job.cluster.rank_of(position.node, d)));
      }
      double forward = 0;
      double backward = 0;
      const LayerRange range = stage_layers(plan, r, s, job.graph.layer_count());
      for (std::uint32_t l = range.first; l < range.last; ++l) {
        const LayerTimes t = model.layer_times(l, sharding);
        const double again = plan.checkpoint_of(r)[l] ? 1 : 0;
        forward += t.forward_s * slow + t.forward_comm_s * inside;
        backward += t.backward_s * slow + t.backward_comm_s * inside +
                    again * (t.forward_s * slow + t.forward_comm_s * inside);
        params[s] += table[l].params;
      }
      pipeline.forward_s.push_back(forward);
      pipeline.backward_s.push_back(backward);
      tails.push_back(model.step_tail(rings[s], sharding));
      if (s + 1 < plan.stages()) {
        const Position& next = plan.placement[r][s + 1];
        const Sharding narrower{
            0, std::min(sharding.width, static_cast<std::uint16_t>(next.devices.size())), false};
        const double bytes = table.cut_bytes(range.last);
        const Link there = link_between(job.cluster, position, next, state);
        const Link back = link_between(job.cluster, next, position, state);
        pipeline.forward_delay_s.push_back(
            model.hop(there, narrower, bytes, plan.stages()).delay_s);
        pipeline.backward_delay_s.push_back(
            model.hop(back, narrower, bytes, plan.stages()).delay_s);
      }
    }
    const auto ends = clock.ends_s(pipeline, plan.microbatches[r]);
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      synchronised = std::max(synchronised, ends[s] + tails[s].sync_s(params[s]));
      update = std::max(update, tails[s].update_s(params[s]));
    }
  }
  return synchronised + update;
}

TEST(StepTime, TakesCutsFlagsAndWidthsOfEachReplica) {
  testing::Draw draw(22);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Job job = testing::uneven_job(seed, 10, 8, 4, 48);
    const std::uint32_t stages = draw.between(2U, 4U);
    Plan plan = interleaved_plan(job, draw, stages, 1, 2, 4);
    plan.replica_splits = {{}, interleaved_plan(job, draw, stages, 1, 2, 4).pp_splits};
    plan.replica_checkpoint = {{}, std::vector<bool>(10)};
    for (std::uint32_t l = 0; l < 10; ++l) {
      plan.replica_checkpoint[1][l] = draw.between(0U, 2U) == 0;
    }
    for (auto& row : plan.placement) {
      for (Position& position : row) {
        position.devices.resize(std::size_t{1} << draw.between(0U, 2U));
      }
    }
    const ClusterState state = testing::random_state(job.cluster, draw, 5);
    PlanEvaluator evaluator(job);
    const double step = evaluator.step_time_s(plan, state);
    EXPECT_NEAR(step, step_by_layers(evaluator, plan, state), 1e-9 * step) << "seed " << seed;
  }
}

TEST(StepTime, ASlowWayBackCostsNothingOnTheWayThere) {
  const Job job = testing::small_job(14, 2, 8, 64);
  const Plan plan = testing::simple_plan(job, {0, 8}, 1, 8);
  ClusterState state;
  state.paths = {{NodeId(1), NodeId(0), 7}};
  PlanEvaluator evaluator(job);
  const Pipeline healthy = evaluator.pipeline_of(plan, 0, {});
  const Pipeline slow = evaluator.pipeline_of(plan, 0, state);
  EXPECT_EQ(slow.forward_delay_s, healthy.forward_delay_s);
  EXPECT_NEAR(slow.backward_delay_s[0] - job.cluster.tor.latency_s,
              7 * (healthy.backward_delay_s[0] - job.cluster.tor.latency_s), 1e-12);
}

TEST(StepTime, OverlapHidesPartOfTheSynchronisation) {
  Job job = testing::small_job(14, 4, 8, 64);
  const Plan plan = testing::simple_plan(job, {0, 8}, 4, 2);
  const double apart = PlanEvaluator(job).step_time_s(plan, {});
  job.overlap_gradients = true;
  EXPECT_LT(PlanEvaluator(job).step_time_s(plan, {}), apart);
}

TEST(MemoryBytes, OfInterleavedGroupsEqualTheCheckers) {
  testing::Draw draw(4);
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Job job = testing::uneven_job(seed, 14, 8, 4, 48);
    job.schedule = Schedule::kInterleaved;
    job.limits.recompute_ratio = 1;
    Plan plan = interleaved_plan(job, draw, draw.between(2U, 4U), draw.between(2U, 3U), 2, 2);
    PlanEvaluator evaluator(job);
    double most = 0;
    for (std::uint32_t g = 0; g < plan.stages(); ++g) {
      most = std::max(most, evaluator.memory_bytes(plan, 0, g));
    }
    // The checker accepts this much memory and no less.
    job.limits.memory_reserve_ratio = 0;
    job.limits.device_memory_bytes = most * (1 + 1e-6);
    EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{}) << "seed " << seed;
    job.limits.device_memory_bytes = most * (1 - 1e-6);
    refused += plan_violations(job, plan).empty() ? 0 : 1;
  }
  EXPECT_EQ(refused, 60);
}

TEST(WithMicroBatchSize, ScalesWhatAMicrobatchNeeds) {
  const Job one = testing::small_job(4, 2, 4, 32);
  const Job two = with_micro_batch_size(one, 2);
  EXPECT_EQ(two.total_microbatches(), one.total_microbatches() / 2);
  EXPECT_TRUE(validate(two).has_value());
  for (std::size_t k = 0; k < one.graph.nodes.size(); ++k) {
    EXPECT_EQ(two.graph.nodes[k].fwd_flops, 2 * one.graph.nodes[k].fwd_flops);
    EXPECT_EQ(two.graph.nodes[k].act_bytes, 2 * one.graph.nodes[k].act_bytes);
    EXPECT_EQ(two.graph.nodes[k].param_bytes, one.graph.nodes[k].param_bytes);
  }
  EXPECT_EQ(with_micro_batch_size(one, 0).graph.micro_batch_size, 1U);
}

}  // namespace
}  // namespace tapas::solver
