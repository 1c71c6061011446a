#include "agent/twin/virtual_job.h"

#include "base/json/json.h"
#include "solver/model/io/load.h"
#include "tests/unit/twin/small_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapas::twin {
namespace {

using agent::RankOrder;
using Phase = VirtualJob::Phase;

class VirtualJobRun : public testing::Test {
 protected:
  VirtualJobRun() : model(small_job()), job(model, {10.0, 1, 0}) {}

  std::string text_of(const solver::Plan& plan) {
    return json::dump(solver::plan_to_json(plan, model));
  }
  void store(const solver::Plan& plan) {
    const auto ok = job.store_plan(plan.epoch.value(), text_of(plan));
    ASSERT_TRUE(ok) << ok.error().message;
  }
  solver::Plan next_plan() {
    solver::Plan plan = small_plan(model, 2);
    plan.replica_splits = {{0, 2}, {}};
    return plan;
  }
  std::vector<agent::RankReply> tell(RankOrder order, std::uint64_t epoch,
                                     std::vector<std::uint32_t> ranks, std::uint64_t at_step = 0) {
    for (const std::uint32_t rank : ranks) {
      job.order({model.name, rank, order, epoch - 1, epoch, at_step});
    }
    return job.take_replies();
  }
  std::vector<std::uint32_t> all() const { return {0, 1, 2, 3, 4, 5, 6, 7}; }
  void start() {
    store(small_plan(model));
    tell(RankOrder::kAdopt, 1, all());
    run_steps(1);
    ASSERT_EQ(job.last_step(), 1U);
  }
  std::vector<FinishedStep> run_steps(std::size_t count) {
    std::vector<FinishedStep> steps;
    for (int tries = 0; steps.size() < count && tries < 100'000; ++tries) {
      (void)job.advance(0.001);
      if (auto step = job.take_step()) {
        steps.push_back(std::move(*step));
      }
    }
    return steps;
  }
  /// Orders of a switch to epoch 2 up to the held boundary after the next step.
  void hold() {
    store(next_plan());
    tell(RankOrder::kPrepare, 2, all());
    tell(RankOrder::kArm, 2, all(), job.last_step() + 1);
    (void)run_steps(1);
    (void)job.advance(0.001);
    ASSERT_EQ(job.phase(), Phase::kHolding);
  }

  const solver::Job model;
  VirtualJob job;
};

TEST_F(VirtualJobRun, StartsWhenEveryRankHasThePlanAndNotBefore) {
  store(small_plan(model));
  EXPECT_EQ(tell(RankOrder::kAdopt, 1, {0, 1, 2, 3, 4, 5, 6}).size(), 7U);
  EXPECT_TRUE(run_steps(1).empty());
  EXPECT_EQ(job.phase(), Phase::kWaitingForPlan);
  tell(RankOrder::kAdopt, 1, {7});
  const auto steps = run_steps(3);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].epoch, 1U);
  EXPECT_EQ(steps[0].flags, wire::kFirstStep);
  EXPECT_EQ(steps[2].flags, 0U);
  EXPECT_EQ(steps[2].step, 3U);
}

TEST_F(VirtualJobRun, StepTakesItsTimeDividedBySpeedAndWaitingPassesAtWallRate) {
  const double before = job.time_s();
  (void)job.advance(2.0);
  EXPECT_NEAR(job.time_s() - before, 2.0, 1e-9);
  start();
  (void)job.advance(1e-6);
  const double begin = job.time_s();
  const double left = job.advance(100.0);
  const auto step = job.take_step();
  ASSERT_TRUE(step);
  EXPECT_NEAR((100.0 - left) * 10.0, step->end_s - begin, 1e-6);
}

TEST_F(VirtualJobRun, AllRanksHoldTogetherAtTheFirstArmedBoundary) {
  start();
  store(next_plan());
  EXPECT_EQ(tell(RankOrder::kPrepare, 2, all()).size(), 8U);
  EXPECT_TRUE(tell(RankOrder::kArm, 2, {0, 1}, 3).empty());
  EXPECT_EQ(run_steps(5).size(), 2U);
  EXPECT_EQ(job.last_step(), 3U);
  EXPECT_EQ(job.phase(), Phase::kHolding);
  const auto first = job.take_replies();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].step, 3U);
  // Ranks that hear of it late, or were to stop later, hold with the others.
  tell(RankOrder::kArm, 2, {2, 3, 4, 5, 6, 7}, 9);
  (void)job.advance(0.001);
  const auto late = job.take_replies();
  ASSERT_EQ(late.size(), 6U);
  EXPECT_EQ(late[0].step, 3U);
  EXPECT_TRUE(late[0].ok);
}

TEST_F(VirtualJobRun, KilledRankCostsTheStepUnderWayAndTheOthersHangUntilTheyAreStopped) {
  start();
  (void)job.advance(1e-6);
  ASSERT_EQ(job.phase(), Phase::kStepping);
  ASSERT_TRUE(job.kill(RankId{5}));
  store(next_plan());
  EXPECT_TRUE(tell(RankOrder::kPrepare, 2, all()).empty()) << "whoever hangs answers nothing";
  EXPECT_TRUE(job.alive(RankId{4}));
  while (job.alive(RankId{4})) {
    (void)job.advance(0.01);
  }
  EXPECT_EQ(job.starts(), 1U);
  while (job.starts() == 1) {
    (void)job.advance(0.01);
  }
  EXPECT_TRUE(job.alive(RankId{5}));
  EXPECT_FALSE(job.take_step()) << "the step was lost";
  EXPECT_EQ(job.phase(), Phase::kWaitingForPlan);
  EXPECT_EQ(job.local_rank(RankId{5}).epoch, 0U);
  EXPECT_TRUE(run_steps(1).empty());
  tell(RankOrder::kAdopt, 1, all());
  const auto steps = run_steps(1);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].step, 2U);
  EXPECT_EQ(steps[0].flags, wire::kFirstStep);
}

TEST_F(VirtualJobRun, SwitchMovesLayersThenRunsTheNewEpochEverywhere) {
  start();
  hold();
  tell(RankOrder::kTransfer, 2, all());
  (void)job.advance(10.0);
  const auto moved = job.take_replies();
  ASSERT_EQ(moved.size(), 8U);
  double bytes = 0;
  double longest = 0;
  for (const agent::RankReply& reply : moved) {
    EXPECT_TRUE(reply.ok) << reply.reason;
    EXPECT_EQ(reply.order, RankOrder::kTransfer);
    bytes += static_cast<double>(reply.bytes);
    longest = std::max(longest, reply.seconds);
  }
  const auto expected = Truth(model, 1).transfer(small_plan(model), next_plan(), {});
  EXPECT_GT(expected.bytes, 0);
  EXPECT_NEAR(bytes, expected.bytes, 8);
  EXPECT_NEAR(longest, *std::max_element(expected.node_s.begin(), expected.node_s.end()), 1e-9);

  // Half a commit is no commit: the job waits for the rest.
  tell(RankOrder::kCommit, 2, {0, 1, 2, 3});
  EXPECT_TRUE(run_steps(1).empty());
  EXPECT_EQ(job.epoch(), 1U);
  tell(RankOrder::kCommit, 2, {4, 5, 6, 7});
  const auto steps = run_steps(3);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].epoch, 2U);
  EXPECT_EQ(steps[0].flags, wire::kAfterSwitch);
  EXPECT_EQ(steps[2].flags, 0U);
  const auto change = job.take_switch();
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->committed);
  EXPECT_EQ(change->epoch, 2U);
  EXPECT_EQ(change->after_step, 2U);
  EXPECT_NEAR(change->bytes, expected.bytes, 1);
  EXPECT_GT(change->pause_s, longest);
}

TEST_F(VirtualJobRun, AbortResumesOnTheOldPlanOnceEveryRankHeardOfIt) {
  start();
  hold();
  tell(RankOrder::kAbort, 2, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(run_steps(1).empty());
  tell(RankOrder::kAbort, 2, {7});
  const auto steps = run_steps(1);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].epoch, 1U);
  EXPECT_EQ(steps[0].step, 3U);
  EXPECT_EQ(steps[0].flags, 0U);
  const auto change = job.take_switch();
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->committed);
  EXPECT_EQ(change->bytes, 0);
}

TEST_F(VirtualJobRun, RefusesOrdersThatDoNotFollowOnEachOther) {
  start();
  const auto refusal = [&](RankOrder order) {
    const auto replies = tell(order, 2, {0}, 1);
    return replies.size() == 1 && !replies[0].ok ? replies[0].reason : std::string("none");
  };
  EXPECT_NE(refusal(RankOrder::kPrepare).find("did not arrive"), std::string::npos);
  store(next_plan());
  EXPECT_NE(refusal(RankOrder::kArm).find("does not follow"), std::string::npos);
  EXPECT_NE(refusal(RankOrder::kTransfer).find("does not follow"), std::string::npos);
  tell(RankOrder::kPrepare, 2, all());
  EXPECT_NE(refusal(RankOrder::kCommit).find("does not follow"), std::string::npos);
  EXPECT_EQ(run_steps(1).size(), 1U);
}

TEST_F(VirtualJobRun, PrepareRefusesAPlanThatCannotRunOrCameInTwoVersions) {
  start();
  solver::Plan bad = next_plan();
  bad.placement[0][0].devices = {0, 5};
  EXPECT_FALSE(job.store_plan(2, text_of(bad)));
  auto replies = tell(RankOrder::kPrepare, 2, {0});
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_FALSE(replies[0].ok);
  EXPECT_NE(replies[0].reason.find("no device 5"), std::string::npos) << replies[0].reason;

  solver::Plan third = small_plan(model, 3);
  store(third);
  third.checkpoint[1] = true;
  EXPECT_FALSE(job.store_plan(3, text_of(third)));
  replies = tell(RankOrder::kPrepare, 3, {0});
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_FALSE(replies[0].ok);
  EXPECT_FALSE(job.store_plan(4, "{\"schema\": \"tapas.plan/1\"}"));
  EXPECT_FALSE(job.store_plan(5, "not json"));
}

TEST_F(VirtualJobRun, AgentThatStartsLateFindsTheRanksInTheMiddleOfTheSwitch) {
  start();
  hold();
  const agent::LocalRank rank = job.local_rank(RankId{3});
  EXPECT_EQ(rank.info.rank, 3U);
  EXPECT_EQ(rank.info.device_uuid.size(), 32U);
  EXPECT_NE(rank.info.device_uuid, job.local_rank(RankId{4}).info.device_uuid);
  EXPECT_EQ(rank.epoch, 1U);
  EXPECT_EQ(rank.pending_epoch, 2U);
  EXPECT_EQ(rank.done, RankOrder::kArm);
}

TEST_F(VirtualJobRun, FaultsSlowTheStepsThatBeginUnderThem) {
  start();
  const double healthy_s = run_steps(2)[1].truth.wall_s;
  job.faults().add(*parse_fault("node=n1 slowdown=2 step=6", model.cluster));
  const auto steps = run_steps(3);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_TRUE(steps[1].faults.empty());
  EXPECT_NEAR(steps[1].truth.wall_s, healthy_s, 0.05 * healthy_s);
  EXPECT_EQ(steps[2].step, 6U);
  EXPECT_EQ(steps[2].faults.size(), 1U);
  EXPECT_GT(steps[2].truth.wall_s, 1.4 * healthy_s);
}

TEST(VirtualJob, StopsAfterItsLastStep) {
  const solver::Job model = small_job();
  VirtualJob job(model, {1000.0, 1, 2});
  ASSERT_TRUE(job.store_plan(1, json::dump(solver::plan_to_json(small_plan(model), model))));
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    job.order({model.name, rank, RankOrder::kAdopt, 0, 1, 0});
  }
  for (int i = 0; i < 10; ++i) {
    (void)job.advance(1.0);
  }
  EXPECT_EQ(job.phase(), Phase::kDone);
  EXPECT_EQ(job.last_step(), 2U);
}

}  // namespace
}  // namespace tapas::twin
