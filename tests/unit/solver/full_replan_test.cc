#include "solver/replan/full_replan.h"

#include "jobs.h"
#include "solver/check/check_plan.h"
#include "solver/cost/predict.h"
#include "solver/cost/switch_cost.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

/// Five nodes of two devices, the last a spare.
class FullReplanOfASmallJob : public ::testing::Test {
 protected:
  FullReplanOfASmallJob() : job(testing::small_job(8, 5, 2, 16)) {
    job.cluster.nodes[4].spare = true;
    request.current = solve(job)->plan;
    request.state.device_slowdown.assign(job.cluster.device_count(), 1.0);
    request.state.drained.assign(job.cluster.nodes.size(), false);
    request.expected_episode_s = 1800;
    request.calibration = 1.25;
  }

  bool uses(const Plan& plan, std::uint32_t node) const {
    for (const auto& row : plan.placement) {
      for (const Position& position : row) {
        if (position.node == NodeId(node)) {
          return true;
        }
      }
    }
    return false;
  }
  /// Step of the best plan for a cluster that consists of these nodes and no other.
  double step_of(const std::vector<std::uint32_t>& nodes) const {
    Job part = job;
    part.cluster.nodes.clear();
    for (const std::uint32_t n : nodes) {
      part.cluster.nodes.push_back(job.cluster.nodes[n]);
      part.cluster.nodes.back().spare = false;
    }
    return solve(part)->plan.predicted.step_time_s;
  }

  Job job;
  ReplanRequest request;
};

TEST_F(FullReplanOfASmallJob, KeepsClearOfDrainedNodesAndTakesSpares) {
  request.state.drained[1] = true;
  const auto full = full_replan(job, request);
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_TRUE(check_plan(job, full->plan));
  EXPECT_FALSE(uses(full->plan, 1));
  EXPECT_TRUE(uses(full->plan, 4));
  EXPECT_EQ(full->without, "drained nodes");
  EXPECT_NEAR(full->step_after_s, 1.25 * step_of({0, 2, 3, 4}), 1e-9);
  EXPECT_NEAR(full->step_before_s, 1.25 * predict(job, request.current).step_time_s, 1e-12);
  EXPECT_FALSE(full->moves.empty());
  EXPECT_NEAR(full->switch_s, job.switch_pause_s + transfer_s(job, full->moves, request.state),
              1e-12);
}

TEST_F(FullReplanOfASmallJob, GivesUpASlowNodeOnlyWhereThatIsFaster) {
  for (const double factor : {1.03, 4.0}) {
    for (std::uint32_t n = 0; n < 2; ++n) {
      request.state.device_slowdown[job.cluster.rank_of(NodeId(n), 0).value()] = factor;
    }
    const auto full = full_replan(job, request);
    ASSERT_TRUE(full) << full.error().message;
    const double clear_s = 1.25 * step_of({2, 3, 4});
    EXPECT_LE(full->step_after_s, clear_s + 1e-9);
    EXPECT_EQ(uses(full->plan, 0), factor < 2);
    EXPECT_EQ(full->without, factor < 2 ? "drained nodes" : "drained and slow nodes");
    EXPECT_NEAR(full->step_after_s, 1.25 * predict(job, full->plan, request.state).step_time_s,
                1e-12);
  }
}

TEST_F(FullReplanOfASmallJob, TakesNodesWithSlowLinksForSlow) {
  request.state.node_links.resize(job.cluster.nodes.size());
  request.state.node_links[2].inside = 500;
  const auto full = full_replan(job, request);
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_FALSE(uses(full->plan, 2));
}

TEST_F(FullReplanOfASmallJob, PaysForItsSearchAndItsSwitch) {
  FullReplan full;
  full.step_before_s = 2;
  full.step_after_s = 1;
  full.switch_s = 10;
  full.expected_episode_s = 100;
  EXPECT_DOUBLE_EQ(full.net_gain_s(0), 80);   // 90 s at twice the pace
  EXPECT_DOUBLE_EQ(full.net_gain_s(30), 50);  // 30 s as before, 60 s at twice the pace
  EXPECT_DOUBLE_EQ(full.net_gain_s(95), -5);  // the episode ends in the pause
  EXPECT_DOUBLE_EQ(full.net_gain_s(500), 0);  // and here before it
}

TEST_F(FullReplanOfASmallJob, SaysThatNothingIsLeftToRunOn) {
  request.state.drained.assign(job.cluster.nodes.size(), true);
  EXPECT_FALSE(full_replan(job, request));
}

TEST_F(FullReplanOfASmallJob, RefusesAStateThatIsNotOfThisCluster) {
  request.state.drained.pop_back();
  EXPECT_FALSE(full_replan(job, request));
}

}  // namespace
}  // namespace tapas::solver
