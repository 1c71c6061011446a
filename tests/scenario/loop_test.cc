#include "tests/scenario/sim.h"
#include "tests/scenario/story.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tapas::daemon::sim {
namespace {

std::shared_ptr<const solver::Job> job(std::uint32_t nodes = 4) { return job_on(nodes); }

TEST(Loop, SlowNodeIsNamedTheJobMovesAndComesBack) {
  for (const std::uint32_t nodes : {4U, 8U}) {
    Sim sim(job(nodes), automatic());
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
    const double healthy_s = sim.view().healthy_step_s;
    EXPECT_NEAR(healthy_s, 1.0, 0.02);
    const std::string culprit = node_name(sim, 2);
    sim.slow(culprit, 1.6);
    const std::uint64_t slowed_at = sim.last_step();
    ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
    EXPECT_LE(sim.last_step() - slowed_at, 7U);
    EXPECT_EQ(sim.events("verdict").front().node, culprit)
        << sim.events("verdict").front().sentence;

    ASSERT_TRUE(sim.run_till([&] { return !sim.events("verify").empty(); }, 60));
    const DecisionRow decision = sim.core().decisions("small").front();
    EXPECT_EQ(decision.reason_code, "micro_replan") << decision.sentence;
    EXPECT_EQ(decision.epoch, Epoch(2));
    EXPECT_EQ(text(decision, "verify"), "kept");
    EXPECT_EQ(text(decision, "node"), culprit);
    EXPECT_NEAR(number(decision, "slowdown"), 1.6, 0.05);
    EXPECT_LE(number(decision, "detect_steps"), 5);
    EXPECT_NEAR(number(decision, "observed_after_s"), number(decision, "step_after_s"),
                0.05 * healthy_s);
    EXPECT_LT(number(decision, "observed_after_s"), number(decision, "slow_step_s"));
    EXPECT_GE(number(decision, "after_over_bound_ratio"), 1.0);

    sim.slow(culprit, 1.0);
    ASSERT_TRUE(sim.run_till([&] { return sim.core().plan("small")->epoch == Epoch(3); }, 120));
    EXPECT_EQ(sim.events("recovery").front().node, culprit);
    EXPECT_EQ(sim.core().decisions("small").front().reason_code, "recovery");
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 60));
    EXPECT_NEAR(sim.last_step_s(), healthy_s, 0.02);
    EXPECT_TRUE(sim.settled());
    EXPECT_EQ(sim.disk().plans.at(Epoch(1)).status, PlanStatus::kSuperseded);
  }
}

TEST(Loop, ObservesOnlyUntilAnOperatorTurnsItOn) {
  Sim sim(job(), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.5);
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(1));
  EXPECT_EQ(sim.core().decisions("small").front().reason_code, "observe_only");

  sim.send({7, "uid 0 (root)", SetAuto{true, "trust it"}});
  ASSERT_TRUE(sim.run_till([&] { return sim.core().plan("small")->epoch == Epoch(2); }, 400));
  ASSERT_EQ(sim.replies().size(), 1U);
  EXPECT_EQ(sim.replies().front().request, 7U);
  EXPECT_TRUE(sim.replies().front().outcome);
}

TEST(Loop, NothingHappensWhileAllIsWell) {
  Options options = automatic();
  options.jitter = 0.115;
  Sim sim(job(8), options);
  sim.run_until(1500);
  EXPECT_GT(sim.last_step(), 1300U);
  EXPECT_TRUE(sim.events("verdict").empty()) << sim.events("verdict").front().sentence;
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(1));
}

TEST(Loop, StepsThatAreNoPlainTrainingStepsAreNotJudged) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.flag_steps(4);
  sim.slow(node_name(sim, 1), 2.0);
  sim.run_until(sim.now() + 60);
  EXPECT_TRUE(sim.events("verdict").empty());
}

TEST(Loop, EverythingSlowIsNobodysFault) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.run_until(sim.now() + 140);  // past the warm-up
  sim.slow_everything(2.2);
  sim.run_until(sim.now() + 300);
  ASSERT_EQ(sim.events("verdict").size(), 1U);
  EXPECT_EQ(sim.events("verdict").front().node, "");
  EXPECT_EQ(sim.core().decisions("small").front().reason_code, "job_wide");
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(1));
  sim.slow_everything(1.0);
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(sim.events("recovery").size(), 1U);
}

TEST(Loop, AFlappingNodeDoesNotMoveTheJobAround) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  const std::string node = node_name(sim, 0);
  for (int i = 0; i < 120; ++i) {  // an hour, slow for half a minute, well for half a minute
    sim.slow(node, i % 2 == 0 ? 1.5 : 1.0);
    sim.run_until(sim.now() + 30);
  }
  EXPECT_LE(sim.core().plan("small")->epoch, Epoch(5));
}

TEST(Loop, ALevelThatWobblesIsNotChased) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  const double levels[] = {1.35, 1.42, 1.38, 1.45, 1.32};
  for (int i = 0; i < 240; ++i) {
    sim.slow(node_name(sim, 3), levels[i % 5]);
    sim.run_until(sim.now() + 15);
  }
  EXPECT_LE(sim.core().plan("small")->epoch, Epoch(2));
}

TEST(Loop, AnOperatorsReplanIsShownThenForced) {
  Sim sim(job(), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.5);
  sim.run_until(sim.now() + 20);
  sim.send({1, "uid 0 (root)", Replan{"small", true}});
  sim.run_until(sim.now() + 1);
  ASSERT_EQ(sim.replies().size(), 1U);
  ASSERT_TRUE(sim.replies()[0].proposal);
  EXPECT_TRUE(sim.replies()[0].proposal->improves);
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(1));

  sim.send({2, "uid 0 (root)", Replan{"small", false}});
  ASSERT_TRUE(sim.run_till([&] { return sim.core().plan("small")->epoch == Epoch(2); }, 60));
  ASSERT_EQ(sim.replies().size(), 2U);
  EXPECT_TRUE(sim.replies()[1].outcome);
  EXPECT_EQ(sim.disk().plans.at(Epoch(2)).trigger, "operator uid 0 (root)");

  sim.send({3, "uid 0 (root)", Replan{"other", false}});
  ASSERT_EQ(sim.replies().size(), 3U);
  EXPECT_EQ(sim.replies()[2].outcome.error().code, ErrorCode::kNotFound);
}

TEST(Loop, ADrainIsDurableAndHonest) {
  Sim sim(job(), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  const std::string node = node_name(sim, 1);
  sim.send({1, "uid 0 (root)", Drain{node, ""}});
  ASSERT_EQ(sim.replies().size(), 1U);
  EXPECT_EQ(sim.replies()[0].outcome.error().code, ErrorCode::kInvalid);
  sim.send({2, "uid 0 (root)", Drain{"nobody", "fan"}});
  EXPECT_EQ(sim.replies()[1].outcome.error().code, ErrorCode::kNotFound);

  sim.send({3, "uid 0 (root)", Drain{node, "fan is loud"}});
  EXPECT_EQ(sim.replies().size(), 2U);
  sim.run_until(sim.now() + 1);
  ASSERT_EQ(sim.replies().size(), 3U);
  ASSERT_TRUE(sim.replies()[2].outcome);
  EXPECT_NE(sim.replies()[2].outcome->find("still works for job small"), std::string::npos)
      << *sim.replies()[2].outcome;
  EXPECT_TRUE(sim.disk().nodes.at(node).drained);
  sim.crash_core();
  sim.run_until(sim.now() + 5);
  bool drained = false;
  for (const AgentView& agent : sim.core().status({}).agents) {
    drained =
        drained || (agent.node == node && agent.drained && agent.drain_reason == "fan is loud");
  }
  EXPECT_TRUE(drained);
}

TEST(Loop, ACrashAtAnyMomentOfASwitchEndsInOneEpoch) {
  for (int moment = 0; moment < 40; ++moment) {
    SCOPED_TRACE(fmt::format("crash {} ms after the decision", moment * 60));
    Sim sim(job(), automatic());
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
    sim.slow(node_name(sim, 1), 1.6);
    ASSERT_TRUE(sim.run_till([&] { return !sim.events("replan_proposed").empty(); }, 60));
    sim.run_until(sim.now() + 0.06 * moment);
    sim.crash_core();
    ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 60)) << sim.view().phase;
    const std::uint64_t step = sim.last_step();
    sim.run_until(sim.now() + 10);
    EXPECT_GT(sim.last_step(), step + 3);
  }
}

TEST(Loop, AFailingStoreStopsAutomaticMovesAndKeepsThePlan) {
  Options options = automatic();
  Sim sim(job(), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.fail_store(true);
  sim.slow(node_name(sim, 1), 1.6);
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(1));
  EXPECT_FALSE(sim.core().status({}).auto_replan);
  EXPECT_NE(sim.core().status({}).auto_reason.find("disk is full"), std::string::npos);
  EXPECT_TRUE(sim.settled());
}

TEST(Loop, APlanThatMakesItWorseIsTakenBackAndNotTriedAgainSoon) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.running_epoch() == Epoch(2); }, 60));
  sim.slow_everything(2.0);
  ASSERT_TRUE(sim.run_till([&] { return sim.core().plan("small")->epoch == Epoch(3); }, 100));
  sim.slow_everything(1.0);
  const solver::Plan& first = *sim.disk().plans.at(Epoch(1)).plan;
  EXPECT_EQ(sim.core().plan("small")->microbatches, first.microbatches);
  EXPECT_EQ(sim.core().plan("small")->replica_splits, first.replica_splits);
  const auto decisions = sim.core().decisions("small");
  EXPECT_EQ(decisions[0].reason_code, "rollback");
  EXPECT_EQ(decisions[1].reason_code, "micro_replan");
  EXPECT_EQ(text(decisions[1], "verify"), "rolled_back");
  EXPECT_GT(number(decisions[1], "observed_after_s"), number(decisions[1], "slow_step_s"));
  EXPECT_EQ(sim.disk().devices.at(node_name(sim, 1) + "/0").planned_at, 0);
  EXPECT_GT(sim.disk().automatic_switches.at(Epoch(2)).rests_until_s, 0);
  sim.crash_core();  // the idea is remembered over that
  sim.run_until(sim.now() + 300);
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(3));
  EXPECT_EQ(sim.core().decisions("small")[0].reason_code, "quarantined");
}

TEST(Loop, NoPlanForALossThatTheModelDoesNotExplain) {
  Sim sim(job(8), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.run_until(sim.now() + 140);
  // One thing that plans account for, and a larger one that none does, at once.
  sim.slow(node_name(sim, 1), 1.3);
  sim.slow_everything(1.8);
  sim.run_until(sim.now() + 120);
  EXPECT_EQ(epoch(sim), Epoch(1)) << told(sim, "decision");
  DecisionRow decision = sim.core().decisions("small").front();
  EXPECT_EQ(decision.reason_code, "unexplained") << decision.sentence;
  EXPECT_EQ(text(decision, "node"), node_name(sim, 1));
  EXPECT_NE(decision.sentence.find("something else slows the job"), std::string::npos)
      << decision.sentence;
  // Said once, asked again: when only what is known is left, it is answered.
  EXPECT_EQ(sim.events("decision").size(), 2U) << told(sim, "decision");  // with the first plan
  sim.slow_everything(1.0);
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2); }, 90)) << told(sim, "decision");
  EXPECT_EQ(sim.core().decisions("small").front().reason_code, "micro_replan");
}

TEST(Loop, ALostAgentBeforeTheDecisionAbortsTheSwitch) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.view().phase == "switching: armed"; }, 60));
  sim.restart_agent(node_name(sim, 2));
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("switch_aborted").empty(); }, 60));
  EXPECT_EQ(sim.core().plan("small")->epoch, Epoch(1));
  ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 60));
  // The reason is still there, so the next try follows.
  ASSERT_TRUE(sim.run_till([&] { return sim.core().plan("small")->epoch == Epoch(3); }, 200));
}

/// Runs in steps that are shorter than any write or message takes.
bool run_till_closely(Sim& sim, const std::function<bool()>& done, double for_s) {
  const double end_s = sim.now() + for_s;
  while (!done() && sim.now() < end_s) {
    sim.run_until(sim.now() + 0.0002);
  }
  return done();
}

TEST(Loop, ACrashRightAfterTheDecisionForgetsNothingOfIt) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  const std::string culprit = node_name(sim, 1);
  sim.slow(culprit, 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.view().phase == "switching: transferring"; }, 60));
  ASSERT_TRUE(run_till_closely(
      sim, [&] { return sim.disk().switches.at(Epoch(2)).state == SwitchState::kCommitDecided; },
      10));
  ASSERT_EQ(epoch(sim), Epoch(1)) << "the core must not have heard of it";
  sim.crash_core();
  ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 60)) << sim.why();
  EXPECT_EQ(epoch(sim), Epoch(2));
  EXPECT_EQ(sim.disk().automatic_switches.count(Epoch(2)), 1U);
  EXPECT_NEAR(sim.disk().devices.at(culprit + "/0").planned_at, 1.6, 0.05);
  EXPECT_EQ(sim.disk().loss.lost_s, 0);
  // So the same condition is no reason for another plan.
  sim.run_until(sim.now() + 120);
  EXPECT_EQ(epoch(sim), Epoch(2)) << told(sim, "decision");
}

TEST(Loop, RanksThatStartAnewWhileTheDecisionIsStoredGetThePlanThatIsDecided) {
  Options options = automatic();
  options.faults.slow_writes = 1;
  Sim sim(job(), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.view().phase == "switching: deciding"; }, 90));
  sim.kill_ranks(node_name(sim, 0), 0.1);
  ASSERT_TRUE(sim.run_till([&] { return sim.settled() && epoch(sim) == Epoch(2); }, 90))
      << sim.why();
}

TEST(Loop, RanksThatStartAnewBeforeTheDecisionEndTheSwitch) {
  for (const char* phase :
       {"switching: preparing", "switching: armed", "switching: transferring"}) {
    SCOPED_TRACE(phase);
    Sim sim(job(), automatic());
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
    sim.slow(node_name(sim, 1), 1.6);
    ASSERT_TRUE(run_till_closely(
        sim, [&] { return sim.view().phase == phase; }, 90));
    sim.kill_ranks(node_name(sim, 0), 0.5);
    ASSERT_TRUE(sim.run_till([&] { return !sim.events("switch_aborted").empty(); }, 20));
    ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 60)) << sim.why();
    ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(3); }, 200)) << told(sim, "decision");
  }
}

TEST(Loop, WhateverMessageIsLostEverybodyEndsInOneEpoch) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Options options = automatic();
    options.seed = seed;
    options.faults.lost = 0.25;
    options.config.prepare_deadline_s = 3;
    options.config.transfer_deadline_s = 3;
    options.config.arm_deadline_s = 5;
    Sim sim(job(), options);
    ASSERT_TRUE(sim.run_till([&] { return sim.last_step() > 20; }, 200)) << sim.why();
    for (std::uint64_t round = 1; round <= 4; ++round) {
      sim.slow(node_name(sim, 1), round % 2 == 1 ? 1.6 : 1.0);
      sim.send({round, fmt::format("uid {}", round), Replan{"small", false}});
      sim.run_until(sim.now() + 30);
    }
    sim.stop_faults();
    ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 100)) << sim.why();
  }
}

TEST(Loop, APinThatComesBetweenAQuestionAndItsAnswerHolds) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Options options;
    options.seed = seed;
    Sim sim(job(), options);
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
    sim.slow(node_name(sim, 1), 1.6);
    sim.run_until(sim.now() + 20);
    const solver::Plan before = *sim.core().plan("small");
    sim.send({1, "uid 1", Replan{"small", false}});
    sim.send({2, "uid 2", Pin{node_name(sim, 0), "debugged"}});
    sim.send({3, "uid 3", Pin{node_name(sim, 1), "debugged"}});
    sim.send({4, "uid 4", Pin{node_name(sim, 2), "debugged"}});
    sim.run_until(sim.now() + 20);
    ASSERT_EQ(sim.replies().size(), 4U);
    EXPECT_EQ(sim.core().plan("small")->placement, before.placement);
    EXPECT_EQ(sim.core().plan("small")->replica_splits, before.replica_splits);
  }
}

TEST(Loop, TwoOrdersForOneNodeAtOnceDoNotUndoEachOther) {
  Sim sim(job(), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.send({1, "uid 1", Drain{node_name(sim, 1), "fan"}});
  sim.send({2, "uid 2", Pin{node_name(sim, 1), "debugged"}});
  sim.run_until(sim.now() + 5);
  ASSERT_EQ(sim.replies().size(), 2U);
  EXPECT_EQ(sim.replies()[0].request, 2U);
  EXPECT_EQ(sim.replies()[0].outcome.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(sim.replies()[1].outcome);
  EXPECT_TRUE(sim.disk().nodes.at(node_name(sim, 1)).drained);
}

TEST(Loop, APauseHoldsARollbackBack) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.running_epoch() == Epoch(2); }, 60));
  sim.slow_everything(2.0);
  sim.send({1, "uid 1", SetAuto{false, "maintenance"}});
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verify").empty(); }, 100));
  sim.run_until(sim.now() + 30);
  EXPECT_EQ(epoch(sim), Epoch(2));
  const DecisionRow decision = sim.core().decisions("small").front();
  EXPECT_EQ(decision.reason_code, "rollback_impossible");
  EXPECT_NE(decision.sentence.find("maintenance"), std::string::npos) << decision.sentence;
}

TEST(Loop, WhatNobodyWaitsForIsWrittenOnceTheDiskHasRoom) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.view().phase == "switching: transferring"; }, 60));
  sim.fill_disk(30);
  sim.run_until(sim.now() + 25);
  EXPECT_EQ(sim.disk().switches.at(Epoch(2)).state, SwitchState::kRunning);
  EXPECT_EQ(epoch(sim), Epoch(1));
  EXPECT_FALSE(sim.core().status({}).auto_replan);
  sim.run_until(sim.now() + 10);
  EXPECT_EQ(sim.disk().switches.at(Epoch(2)).state, SwitchState::kAborted);
  EXPECT_EQ(sim.disk().plans.at(Epoch(2)).status, PlanStatus::kAborted);
  EXPECT_TRUE(sim.settled()) << sim.why();
}

TEST(Loop, AFirstPlanThatCouldNotBeStoredIsMadeAgain) {
  Sim sim(job(), {});
  sim.fill_disk(20);
  sim.run_until(15);
  EXPECT_EQ(sim.core().plan("small"), nullptr);
  EXPECT_NE(sim.view().phase.find("disk is full"), std::string::npos) << sim.view().phase;
  ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 60)) << sim.why();
}

TEST(Loop, TwoAgentsThatClaimOneNodeDoNoHarm) {
  Sim sim(job(), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.view().phase == "switching: armed"; }, 60));
  sim.clash(node_name(sim, 2), 20);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("switch_aborted").empty(); }, 30));
  const std::uint64_t step = sim.last_step();
  sim.run_until(sim.now() + 30);
  EXPECT_GT(sim.last_step(), step + 15) << "the job trains on";
  ASSERT_TRUE(sim.run_till([&] { return sim.settled() && epoch(sim) == Epoch(3); }, 200))
      << sim.why();
}

}  // namespace
}  // namespace tapas::daemon::sim
