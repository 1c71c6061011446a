#include "solver/model/plan.h"

#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

/// Two replicas of two stages, every stage one node of two devices.
Plan tiny_plan() {
  Plan plan;
  plan.job = "gpt-tiny";
  plan.pp_splits = {0, 3};
  plan.tp_width.assign(6, 2);
  plan.checkpoint.assign(6, false);
  plan.microbatches = {8, 8};
  plan.placement = {{{NodeId(0), {0, 1}}, {NodeId(1), {0, 1}}},
                    {{NodeId(2), {0, 1}}, {NodeId(3), {0, 1}}}};
  return plan;
}

TEST(Plan, CutsLayersByReplica) {
  Plan plan = tiny_plan();
  plan.replica_splits = {{}, {0, 4}};
  EXPECT_EQ(stage_layers(plan, 0, 0, 6).first, 0U);
  EXPECT_EQ(stage_layers(plan, 0, 0, 6).last, 3U);
  EXPECT_EQ(stage_layers(plan, 0, 1, 6).last, 6U);
  EXPECT_EQ(stage_layers(plan, 1, 0, 6).last, 4U);
  EXPECT_EQ(stage_layers(plan, 1, 1, 6).first, 4U);
}

TEST(Moves, AreNoneWhenOnlySettingsChange) {
  const Job job = tiny_job();
  Plan after = tiny_plan();
  after.microbatches = {10, 6};
  after.checkpoint.assign(6, true);
  EXPECT_TRUE(moves_between(job, tiny_plan(), after).empty());
}

TEST(Moves, HoldTheLayersThatCrossACut) {
  const Job job = tiny_job();
  Plan after = tiny_plan();
  after.replica_splits = {{0, 2}, {}};
  const std::vector<LayerMove> moves = moves_between(job, tiny_plan(), after);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].replica, 0U);
  EXPECT_EQ(moves[0].layer, 2U);
  EXPECT_EQ(moves[0].from_stage, 0U);
  EXPECT_EQ(moves[0].to_stage, 1U);
  EXPECT_EQ(moves[0].from.node, NodeId(0));
  EXPECT_EQ(moves[0].to.node, NodeId(1));
  // A block of 12 h^2 + 13 h parameters: 2 bytes each, and half of the 12 bytes of Adam state, as
  // ZeRO-1 shares that among two replicas.
  const double params = 12.0 * 1024 * 1024 + 13.0 * 1024;
  EXPECT_DOUBLE_EQ(moves[0].bytes, params * (2 + 12.0 / 2));
  Job whole = job;
  whole.zero_stage = 0;
  EXPECT_DOUBLE_EQ(moves_between(whole, tiny_plan(), after)[0].bytes, params * 14);
}

TEST(Moves, FollowAReplicaToOtherNodes) {
  const Job job = tiny_job();
  Plan after = tiny_plan();
  std::swap(after.placement[0][1], after.placement[1][1]);
  const auto moves = moves_between(job, tiny_plan(), after);
  EXPECT_EQ(moves.size(), 6U);  // three layers of the last stage in each replica
  for (const LayerMove& move : moves) {
    EXPECT_EQ(move.from_stage, 1U);
    EXPECT_EQ(move.to_stage, 1U);
  }
}

TEST(Moves, BringOnlyTheOptimizerToDevicesThatHoldTheLayer) {
  const Job job = tiny_job();
  Plan after = tiny_plan();
  std::swap(after.placement[0][1], after.placement[1][1]);
  after.replica_splits = {{0, 2}, {}};  // and one layer more goes to the last stage of replica 0
  const auto moves = moves_between(job, tiny_plan(), after);
  ASSERT_EQ(moves.size(), 7U);
  const double block = 12.0 * 1024 * 1024 + 13.0 * 1024;
  for (const LayerMove& move : moves) {
    if (move.replica == 0 && move.layer == 2) {
      EXPECT_EQ(move.from.node, NodeId(0));
      EXPECT_EQ(move.to.node, NodeId(3));
      EXPECT_DOUBLE_EQ(move.bytes, block * (2 + 6)) << "node 3 did not have this layer";
    } else {
      EXPECT_EQ(move.to.node, NodeId(move.replica == 0 ? 3 : 1));
      EXPECT_EQ(move.from.node, NodeId(move.replica == 0 ? 1 : 3));
      if (move.layer == 3) {
        EXPECT_DOUBLE_EQ(move.bytes, block * 6) << "half of Adam's state";
      }
    }
  }
  Job whole = job;
  whole.zero_stage = 0;
  EXPECT_EQ(moves_between(whole, tiny_plan(), after).size(), 1U);
}

TEST(Moves, FeedANewReplicaFromAnOldOne) {
  const Job job = tiny_job();
  Plan before = tiny_plan();
  before.placement.pop_back();
  before.microbatches = {16};
  const auto moves = moves_between(job, before, tiny_plan());
  ASSERT_EQ(moves.size(), 6U);
  EXPECT_EQ(moves[0].replica, 1U);
  EXPECT_EQ(moves[0].from.node, NodeId(0));
  EXPECT_EQ(moves[0].to.node, NodeId(2));
}

}  // namespace
}  // namespace tapas::solver
