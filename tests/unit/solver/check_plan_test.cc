#include "solver/check/check_plan.h"

#include "jobs.h"
#include "solver/check/check_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tapas::solver {
namespace {

class CheckPlan : public ::testing::Test {
 protected:
  Job job = testing::small_job(6, 4, 8, 32);
  Plan plan = testing::simple_plan(job, {0, 4}, 2, 8);

  void expect_refused(const std::string& words) {
    const auto found = plan_violations(job, plan);
    ASSERT_FALSE(found.empty()) << "expected: " << words;
    std::string all;
    for (const std::string& sentence : found) {
      all += sentence + "\n";
    }
    EXPECT_NE(all.find(words), std::string::npos) << all;
    EXPECT_FALSE(check_plan(job, plan).has_value());
  }
};

TEST_F(CheckPlan, AcceptsASoundPlan) {
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{});
  EXPECT_TRUE(check_plan(job, plan).has_value());
}

TEST_F(CheckPlan, RefusesAnotherJobsPlan) {
  plan.job = "other";
  expect_refused("the plan is for job \"other\"");
}

TEST_F(CheckPlan, RefusesLayersWithoutAStage) {
  plan.pp_splits[0] = 1;
  expect_refused("must start with layer 0");
}

TEST_F(CheckPlan, RefusesCutsThatDoNotGrow) {
  plan.pp_splits[1] = 0;
  expect_refused("does not grow at stage 1");
}

TEST_F(CheckPlan, RefusesCutsBehindTheModel) {
  plan.pp_splits[1] = 8;
  expect_refused("layers 0 to 7");
}

TEST_F(CheckPlan, RefusesArraysOfTheWrongLength) {
  plan.checkpoint.pop_back();
  plan.tp_width.push_back(8);
  plan.microbatches.push_back(1);
  plan.placement[1].pop_back();
  EXPECT_GE(plan_violations(job, plan).size(), 4U);
  plan = Plan{};
  EXPECT_FALSE(check_plan(job, plan).has_value());
}

TEST_F(CheckPlan, RefusesMixedAndWrongTpWidths) {
  plan.tp_width[2] = 4;
  expect_refused("mixes TP widths 8 and 4");
  plan.tp_width.assign(8, 4);
  expect_refused("has 8 devices for TP width 4");
  plan.tp_width.assign(8, 0);
  expect_refused("TP width 0");
}

TEST_F(CheckPlan, RefusesASequenceWidthThatIsNotTheTpWidth) {
  plan.sp_width = 2;
  expect_refused("sp_width is 2");
}

TEST_F(CheckPlan, RefusesADeviceUsedTwice) {
  plan.placement[1][1] = plan.placement[0][0];
  expect_refused("is used by stage 0 of replica 0 and by stage 1 of replica 1");
}

TEST_F(CheckPlan, RefusesNodesAndDevicesThatDoNotExist) {
  plan.placement[0][0].node = NodeId(99);
  expect_refused("on node 99, but the cluster has 4 nodes");
  plan.placement[0][0].node = NodeId(0);
  plan.placement[0][0].devices[7] = 8;
  expect_refused("device 8 of node node000, which has 8");
}

TEST_F(CheckPlan, RefusesPartOfASpare) {
  job.cluster.nodes[3].spare = true;
  EXPECT_TRUE(plan_violations(job, plan).empty()) << "whole spares may run";
  Plan narrow = testing::simple_plan(job, {0, 4}, 7, 2);
  plan = narrow;
  expect_refused("spare node node003 is used with 4 of its 8 devices");
}

TEST_F(CheckPlan, RefusesStagesAcrossCollectiveLibraries) {
  job.cluster.device_types.push_back(job.cluster.device_types[0]);
  job.cluster.device_types[1].name = "910B";
  job.cluster.device_types[1].collective_library = "hccl";
  job.cluster.node_types.push_back(job.cluster.node_types[0]);
  job.cluster.node_types[1].device_type = 1;
  job.cluster.nodes[3].type = 1;
  expect_refused("cannot reduce gradients together");
}

TEST_F(CheckPlan, RefusesMicrobatchesThatDoNotAddUp) {
  plan.microbatches[0] += 1;
  expect_refused("microbatches add up to 33");
  plan.microbatches = {32, 0};
  expect_refused("replica 1 has no microbatch");
}

TEST_F(CheckPlan, RefusesWhatTheRuntimeCannotDo) {
  job.capabilities.microbatch_counts = false;
  plan.microbatches = {20, 12};
  expect_refused("needs equal counts");
  job.capabilities.replica_splits = false;
  plan.replica_splits = {{}, {0, 3}};
  expect_refused("replicas are cut differently");
}

TEST_F(CheckPlan, RefusesFlagsThatDifferWhereTheRuntimeCannotChangeThem) {
  job.limits.recompute_ratio = 1;
  plan.replica_checkpoint = {{}, std::vector<bool>(8, true)};
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{});
  job.capabilities.recompute = false;
  expect_refused("replicas recompute different layers");
  plan.replica_checkpoint[1] = plan.checkpoint;
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{}) << "these are the common ones";
}

TEST_F(CheckPlan, RefusesFlagsOfTheWrongLength) {
  plan.replica_checkpoint = {{}, {}, {}};
  expect_refused("replica_checkpoint has 3 entries for 2 replicas");
  plan.replica_checkpoint = {{}, {true}};
  expect_refused("replica_checkpoint[1] has 1 entries for 8 layers");
}

TEST_F(CheckPlan, JudgesTheFlagsOfEachReplica) {
  plan.replica_checkpoint = {{}, std::vector<bool>(8, true)};
  expect_refused("stage 0 of replica 1 recomputes 33.3 %");
  EXPECT_EQ(plan_violations(job, plan).size(), 2U) << "both stages of replica 1, none of replica 0";
  // Memory that only recomputation keeps.
  job.limits.recompute_ratio = 1;
  const MemoryCheck memory(job);
  const Position& at = plan.placement[0][0];
  const double kept = memory.stage_bytes(plan, at, plan.checkpoint, {0, 4}, 2);
  const double less = memory.stage_bytes(plan, at, std::vector<bool>(8, true), {0, 4}, 2);
  ASSERT_LT(less, 0.9 * kept);
  job.limits.device_memory_bytes = 0.99 * kept / (1 - job.limits.memory_reserve_ratio);
  const auto found = plan_violations(job, plan);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].find("stage 0 of replica 0 needs"), std::string::npos) << found[0];
}

TEST_F(CheckPlan, TakesNarrowerGroupsWhereTheRuntimeCan) {
  plan.placement[1][1].devices.resize(4);
  expect_refused("has 4 devices for TP width 8, and the job's runtime runs no narrower groups");
  job.capabilities.narrower_groups = true;
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{});
  plan.placement[1][1].devices.resize(3);
  expect_refused("has 3 devices for TP width 8; a narrower group must divide it");
  plan.placement[1][1].devices.clear();
  expect_refused("has 0 devices for TP width 8");
  plan = testing::simple_plan(job, {0, 4}, 2, 4);
  plan.placement[1][1].devices = {4, 5, 6, 7, 0, 1, 2, 3};
  expect_refused("has 8 devices for TP width 4");
}

TEST_F(CheckPlan, CountsTheMemoryOfANarrowerGroupByItsOwnWidth) {
  job.capabilities.narrower_groups = true;
  plan.placement[1][1].devices.resize(2);
  const MemoryCheck memory(job);
  const double narrow = memory.stage_bytes(plan, plan.placement[1][1], plan.checkpoint, {4, 8}, 1);
  const double wide = memory.stage_bytes(plan, plan.placement[0][1], plan.checkpoint, {4, 8}, 1);
  ASSERT_GT(narrow, 2 * wide);
  job.limits.device_memory_bytes = 0.99 * narrow / (1 - job.limits.memory_reserve_ratio);
  expect_refused("stage 1 of replica 1 needs");
  EXPECT_EQ(plan_violations(job, plan).size(), 1U);
}

TEST_F(CheckPlan, CountsWhatANarrowerGroupLeavesIdleAsUsed) {
  job.capabilities.narrower_groups = true;
  job.cluster.nodes[3].spare = true;
  plan.placement[1][1].devices.resize(4);
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{});
  plan = testing::simple_plan(job, {0, 4}, 3, 4);  // the spare is not used at all
  plan.placement[2][1] = {NodeId(3), {0, 1}};
  expect_refused("spare node node003 is used with 4 of its 8 devices");
}

TEST_F(CheckPlan, RefusesAStageThatDoesNotFit) {
  job.limits.device_memory_bytes = 0.2e9;
  expect_refused("stage 0 of replica 0 needs");
}

TEST_F(CheckPlan, JudgesTheCutsOfEachReplica) {
  // A limit that the equal cut keeps and the lopsided one breaks.
  const MemoryCheck memory(job);
  const Position& at = plan.placement[0][0];
  const double most = std::max(memory.stage_bytes(plan, at, plan.checkpoint, {0, 4}, 2),
                               memory.stage_bytes(plan, at, plan.checkpoint, {4, 8}, 1));
  job.limits.device_memory_bytes = 1.01 * most / (1 - job.limits.memory_reserve_ratio);
  ASSERT_TRUE(plan_violations(job, plan).empty());
  plan.replica_splits = {{}, {0, 7}};
  expect_refused("stage 0 of replica 1 needs");
}

TEST_F(CheckPlan, RefusesTooMuchRecomputation) {
  plan.checkpoint.assign(8, true);
  expect_refused("recomputes 33.3 % of its compute, the limit is 15.0 %");
}

TEST_F(CheckPlan, RefusesPredictionsOutOfLimitsOrReach) {
  job.limits.step_time_s = 1;
  plan.predicted.step_time_s = 2;
  expect_refused("over the limit of 1.000 s");
  plan.predicted.step_time_s = 1e-6;
  expect_refused("is impossible");
}

TEST_F(CheckPlan, AcceptsAndRefusesInterleavedPlans) {
  job.schedule = plan.schedule = Schedule::kInterleaved;
  plan.interleave = 2;
  plan.pp_splits = {0, 2, 4, 6};
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{});
  plan.microbatches = {17, 15};
  expect_refused("replica 0 has 17 microbatches");
  plan.microbatches = {16, 16};
  plan.pp_splits = {0, 4};
  expect_refused("interleave 2 needs a multiple of it, at least twice");
  plan.pp_splits = {0, 2, 4, 5, 6, 7};
  expect_refused("replica 0 places 2 stages, but pp_splits has 6 for interleave 2");
  plan.interleave = 0;
  expect_refused("interleave 0");
  plan.pp_splits = {0, 2, 4, 6};
  plan.interleave = 2;
  job.schedule = plan.schedule = Schedule::k1f1b;
  expect_refused("interleave is 2, but schedule 1f1b");
}

TEST_F(CheckPlan, ReadsTheJobWithThePlansMicroBatchSize) {
  plan.micro_batch_size = 2;
  expect_refused("takes 2 samples per microbatch, which the job does not allow");
  job.search.micro_batch_sizes = {1, 2};
  expect_refused("microbatches add up to 32, but a batch of 32 in microbatches of 2 needs 16");
  plan.microbatches = {8, 8};
  EXPECT_EQ(plan_violations(job, plan), std::vector<std::string>{});
}

TEST_F(CheckPlan, RefusesAScheduleThatIsNotTheJobs) {
  plan.schedule = Schedule::kGpipe;
  expect_refused("the plan's schedule is gpipe");
}

}  // namespace
}  // namespace tapas::solver
