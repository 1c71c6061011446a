#include "daemon/core/attribution.h"

#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

/// Two stages of two layers or more, `replicas` replicas, each stage on a node of its own.
struct Setting {
  explicit Setting(std::uint32_t replicas, std::uint32_t devices = 4)
      : job(solver::testing::small_job(6, replicas * 2, devices, replicas * 4)),
        plan(solver::testing::simple_plan(job, {0, 4}, replicas,
                                          static_cast<std::uint16_t>(devices))),
        roles(job, plan) {
    findings.reporting = findings.expected = roles.held();
  }
  void slow(RankId rank, double slowdown, std::uint64_t since = 100) {
    RankDeviation found;
    found.rank = rank;
    found.slowdown = slowdown;
    found.since = {since, 0};
    found.steps = 5;
    findings.ranks.push_back(found);
  }
  void slow_node(std::uint32_t node, double slowdown) {
    for (std::uint32_t d = 0; d < job.cluster.type_of(NodeId(node)).devices; ++d) {
      slow(job.cluster.rank_of(NodeId(node), d), slowdown);
    }
  }
  [[nodiscard]] NodeId node_of(std::uint32_t replica, std::uint32_t stage) const {
    return plan.placement[replica][stage].node;
  }
  [[nodiscard]] Verdict verdict() const { return attribute(findings, roles, job.cluster); }
  [[nodiscard]] const std::string& name(NodeId node) const {
    return job.cluster.nodes[node.value()].name;
  }

  solver::Job job;
  solver::Plan plan;
  Roles roles;
  Findings findings;
};

TEST(Attribution, AllDevicesOfANodeMakeTheHost) {
  Setting setting(4);
  const NodeId node = setting.node_of(2, 1);
  setting.slow_node(node.value(), 1.6);
  const Verdict verdict = setting.verdict();
  EXPECT_EQ(verdict.cause, Cause::kHost);
  ASSERT_EQ(verdict.culprits.size(), 1U);
  EXPECT_EQ(verdict.culprits[0].node, setting.name(node));
  EXPECT_EQ(verdict.culprits[0].ranks.size(), 4U);
  EXPECT_EQ(verdict.since.step, 100U);
}

TEST(Attribution, OneDeviceIsBlamedAlone) {
  Setting setting(4);
  setting.slow(setting.job.cluster.rank_of(setting.node_of(1, 0), 2), 1.4);
  const Verdict verdict = setting.verdict();
  EXPECT_EQ(verdict.cause, Cause::kDevice);
  ASSERT_EQ(verdict.culprits[0].ranks.size(), 1U);
  EXPECT_NE(verdict.sentence.find("device 2"), std::string::npos) << verdict.sentence;
}

TEST(Attribution, MostDevicesSlowAlikeTakeTheRestOfTheNodeAlong) {
  Setting setting(4);
  for (std::uint32_t d = 0; d < 3; ++d) {
    setting.slow(setting.job.cluster.rank_of(setting.node_of(1, 0), d), 1.4);
  }
  EXPECT_EQ(setting.verdict().cause, Cause::kHost);
  EXPECT_EQ(setting.verdict().culprits[0].ranks.size(), 4U);
}

TEST(Attribution, TheWorstOfSeveralNodesComesFirst) {
  Setting setting(4);
  setting.slow_node(setting.node_of(0, 0).value(), 1.3);
  setting.slow_node(setting.node_of(3, 1).value(), 1.9);
  const Verdict verdict = setting.verdict();
  ASSERT_EQ(verdict.culprits.size(), 2U);
  EXPECT_EQ(verdict.culprits[0].node, setting.name(setting.node_of(3, 1)));
}

TEST(Attribution, AStageSlowInAllReplicasIsHeavyAndNoNodesFault) {
  Setting few(2);
  few.slow_node(few.node_of(0, 1).value(), 1.3);
  few.slow_node(few.node_of(1, 1).value(), 1.3);
  EXPECT_EQ(few.verdict().cause, Cause::kHeavyStage);
  EXPECT_TRUE(few.verdict().culprits.empty());
  EXPECT_EQ(few.verdict().stages, (std::vector<std::uint32_t>{1}));

  Setting many(4);
  StageDeviation stage;
  stage.stage = 0;
  stage.slowdown = 1.3;
  stage.steps = 4;
  many.findings.stages.push_back(stage);
  EXPECT_EQ(many.verdict().cause, Cause::kHeavyStage);
}

TEST(Attribution, ASlowerStepWithoutASlowRankIsJobWide) {
  Setting setting(4);
  setting.findings.job = Deviation{1.5, 1.0, 1.5, 9.0, {90, 0}, 12};
  EXPECT_EQ(setting.verdict().cause, Cause::kJobWide);
  EXPECT_TRUE(setting.verdict().culprits.empty());
  setting.findings.compute_ratio = 1.5;
  EXPECT_EQ(setting.verdict().cause, Cause::kJobWide);
  EXPECT_NE(setting.verdict().sentence.find("every rank computes"), std::string::npos);
}

TEST(Attribution, WallTimesAloneLeaveTheCulpritUnknown) {
  Setting setting(4);
  setting.findings.job = Deviation{1.5, 1.0, 1.5, 9.0, {90, 0}, 12};
  setting.findings.compute_known = false;
  EXPECT_EQ(setting.verdict().cause, Cause::kUnknown);
  setting.findings.compute_known = true;
  setting.findings.reporting = setting.findings.expected / 2;
  EXPECT_EQ(setting.verdict().cause, Cause::kUnknown);
}

TEST(Attribution, NothingThatHoldsIsNoVerdict) {
  EXPECT_EQ(Setting(4).verdict().cause, Cause::kNothing);
}

TEST(Attribution, LateLoadersAreNamedButNothingOfThemIsSlow) {
  Setting setting(4);
  const NodeId node = setting.node_of(1, 0);
  RankDeviation late;
  late.rank = setting.job.cluster.rank_of(node, 2);
  late.slowdown = 1.3;
  late.after = 0.4;
  late.since = {300, 0};
  late.steps = 10;
  setting.findings.late.push_back(late);
  setting.findings.job = Deviation{1.3, 1.4, 1.8, 9, {300, 0}, 10};
  const Verdict verdict = setting.verdict();
  EXPECT_EQ(verdict.cause, Cause::kInput);
  EXPECT_TRUE(verdict.culprits.empty());
  ASSERT_EQ(verdict.late.size(), 1U);
  EXPECT_EQ(verdict.late[0].node, setting.name(node));
  EXPECT_FALSE(verdict.late[0].host);
  EXPECT_NE(verdict.sentence.find("waits 0.400 s for its next batch"), std::string::npos)
      << verdict.sentence;
  // A slow device comes first; the loader gets its turn.
  setting.slow(setting.job.cluster.rank_of(setting.node_of(2, 1), 0), 1.5);
  EXPECT_EQ(setting.verdict().cause, Cause::kDevice);
}

TEST(Attribution, ALongerStepIsToldByWhatGrewWithIt) {
  Setting setting(4);
  setting.findings.job = Deviation{1.4, 1.0, 1.4, 9, {300, 0}, 12};
  setting.findings.input_ratio = 1.35;
  EXPECT_EQ(setting.verdict().cause, Cause::kJobWide);
  EXPECT_NE(setting.verdict().sentence.find("wait for input"), std::string::npos);
  setting.findings.input_ratio = 1.05;
  setting.findings.work_ratio = 1.3;
  EXPECT_EQ(setting.verdict().cause, Cause::kData) << setting.verdict().sentence;
  EXPECT_TRUE(setting.verdict().culprits.empty());
  setting.findings.work_ratio = 1.1;
  EXPECT_EQ(setting.verdict().cause, Cause::kJobWide);
}

}  // namespace
}  // namespace tapas::daemon
