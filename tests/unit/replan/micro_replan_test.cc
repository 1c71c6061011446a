#include "solver/replan/micro_replan.h"

#include "solver/check/check_plan.h"
#include "solver/cost/predict.h"
#include "solver/model/io/load.h"
#include "solver/search/solve.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tapas::solver {
namespace {

ReplanRequest request_for(const Job& job, Plan plan) {
  ReplanRequest request;
  request.current = std::move(plan);
  request.state.device_slowdown.assign(job.cluster.device_count(), 1);
  request.expected_episode_s = 1800;
  return request;
}

void slow_node(const Job& job, ReplanRequest& request, NodeId node, double factor) {
  for (std::uint32_t d = 0; d < job.cluster.type_of(node).devices; ++d) {
    request.state.device_slowdown[job.cluster.rank_of(node, d).value()] = factor;
  }
}

TEST(MicroReplan, ComesWithinTenPercentOfTheBoundOnTheExampleJob) {
  const auto job = load_job(TAPAS_SOURCE_DIR "/config/examples/gpt3-175b-a800-1024.json");
  ASSERT_TRUE(job) << job.error().message;
  const auto solved = solve(*job);
  ASSERT_TRUE(solved) << solved.error().message;
  ReplanRequest request = request_for(*job, solved->plan);
  request.calibration = 1.1;
  for (const std::uint32_t node : {0U, 37U, 127U}) {
    ReplanRequest slow = request;
    slow_node(*job, slow, NodeId(node), 1.6);
    const auto proposal = micro_replan(*job, slow);
    ASSERT_TRUE(proposal) << proposal.error().message;
    EXPECT_TRUE(proposal->improves) << proposal->reason;
    EXPECT_GT(proposal->step_before_s, 1.2 * solved->plan.predicted.step_time_s * 1.1);
    EXPECT_LE(proposal->step_after_s, 1.10 * proposal->lower_bound_s) << proposal->reason;
    EXPECT_GE(proposal->step_after_s, proposal->lower_bound_s);
    EXPECT_TRUE(check_plan(*job, proposal->plan).has_value());
    EXPECT_FALSE(proposal->moves.empty());
    for (const LayerMove& move : proposal->moves) {
      const auto& row = solved->plan.placement[move.replica];
      EXPECT_TRUE(
          std::any_of(row.begin(), row.end(),
                      [&](const Position& position) { return position.node == NodeId(node); }))
          << "replica " << move.replica << " has no slow node, but its layers move";
    }

    ReplanRequest healed = request;
    healed.current = proposal->plan;
    const auto back = micro_replan(*job, healed);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(back->improves) << back->reason;
    // What is left where it is saves more bytes than the step loses.
    EXPECT_NEAR(back->step_after_s, solved->plan.predicted.step_time_s * 1.1, 2e-3);
  }
}

TEST(MicroReplan, IsNeverWorseThanDoingNothing) {
  testing::Draw draw(31);
  int improved = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Job job = testing::uneven_job(seed, 10, 6, 4, 24);
    const auto solved = solve(job);
    ASSERT_TRUE(solved) << solved.error().message;
    ReplanRequest request = request_for(job, solved->plan);
    request.expected_episode_s = draw.between(1.0, 400.0);
    for (std::uint32_t k = draw.between(0U, 3U); k > 0; --k) {
      slow_node(job, request, NodeId(draw.between(0U, 5U)), draw.between(1.05, 3.0));
    }
    const auto proposal = micro_replan(job, request);
    ASSERT_TRUE(proposal) << proposal.error().message;
    EXPECT_TRUE(check_plan(job, proposal->plan).has_value());
    EXPECT_NEAR(predict(job, proposal->plan, request.state).step_time_s, proposal->step_after_s,
                1e-9);
    EXPECT_GE(proposal->step_after_s, proposal->lower_bound_s * (1 - 1e-12));
    if (proposal->improves) {
      ++improved;
      EXPECT_LT(proposal->step_after_s, proposal->step_before_s);
      EXPECT_GT(proposal->net_gain_s, 0);
    } else {
      EXPECT_EQ(proposal->plan.microbatches, solved->plan.microbatches);
      EXPECT_EQ(proposal->step_after_s, proposal->step_before_s);
    }
    EXPECT_FALSE(proposal->reason.empty());
  }
  EXPECT_GT(improved, 10);
}

TEST(MicroReplan, KeepsThePlanWhenTheEpisodeIsTooShort) {
  const Job job = testing::small_job(14, 4, 8, 64);
  const auto solved = solve(job);
  ASSERT_TRUE(solved);
  ReplanRequest request = request_for(job, solved->plan);
  slow_node(job, request, NodeId(1), 1.6);
  request.expected_episode_s = 1;  // the pause alone takes two
  const auto proposal = micro_replan(job, request);
  ASSERT_TRUE(proposal);
  EXPECT_FALSE(proposal->improves);
  EXPECT_NE(proposal->reason.find("the plan stays"), std::string::npos) << proposal->reason;
}

TEST(MicroReplan, LeavesAHealthyPlanAlone) {
  const Job job = testing::small_job(14, 4, 8, 64);
  const auto solved = solve(job);
  ASSERT_TRUE(solved);
  const auto proposal = micro_replan(job, request_for(job, solved->plan));
  ASSERT_TRUE(proposal);
  EXPECT_FALSE(proposal->improves) << proposal->reason;
}

TEST(MicroReplan, PutsASpareInThePlaceOfADrainedNode) {
  Job job = testing::small_job(14, 5, 8, 64);
  job.cluster.nodes[4].spare = true;
  const auto solved = solve(job);
  ASSERT_TRUE(solved);
  ReplanRequest request = request_for(job, solved->plan);
  const NodeId drained = solved->plan.placement[0][0].node;
  request.state.drained.assign(5, false);
  request.state.drained[drained.value()] = true;
  const auto proposal = micro_replan(job, request);
  ASSERT_TRUE(proposal) << proposal.error().message;
  EXPECT_TRUE(proposal->improves) << proposal->reason;
  for (const auto& row : proposal->plan.placement) {
    for (const Position& position : row) {
      EXPECT_NE(position.node, drained);
    }
  }
  EXPECT_TRUE(check_plan(job, proposal->plan).has_value());

  job.cluster.nodes.pop_back();
  request.state.device_slowdown.resize(32);
  request.state.drained.pop_back();
  const auto without = micro_replan(job, request);
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->improves);
  EXPECT_NE(without->reason.find("no healthy spare"), std::string::npos) << without->reason;
}

TEST(MicroReplan, IsDeterministic) {
  const Job job = testing::uneven_job(77, 10, 6, 4, 24);
  const auto solved = solve(job);
  ASSERT_TRUE(solved);
  ReplanRequest request = request_for(job, solved->plan);
  slow_node(job, request, NodeId(2), 1.8);
  const auto a = micro_replan(job, request);
  const auto b = micro_replan(job, request);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->reason, b->reason);
  EXPECT_EQ(a->plan.microbatches, b->plan.microbatches);
  EXPECT_EQ(a->plan.replica_splits, b->plan.replica_splits);
  EXPECT_EQ(a->plans_evaluated, b->plans_evaluated);
}

TEST(MicroReplan, RefusesNonsense) {
  const Job job = testing::small_job(14, 4, 8, 64);
  const auto solved = solve(job);
  ASSERT_TRUE(solved);
  ReplanRequest request = request_for(job, solved->plan);
  request.state.device_slowdown[3] = 0;
  EXPECT_FALSE(micro_replan(job, request));
  request = request_for(job, solved->plan);
  request.calibration = 0;
  EXPECT_FALSE(micro_replan(job, request));
  request = request_for(job, solved->plan);
  request.current.microbatches[0] += 1;
  EXPECT_FALSE(micro_replan(job, request));
}

}  // namespace
}  // namespace tapas::solver
