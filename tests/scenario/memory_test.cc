// What the core remembers and what holds it back.
#include "tests/scenario/sim.h"
#include "tests/scenario/story.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::daemon::sim {
namespace {

TEST(Memory, APauseOutlastsARestartAnOnDoesNot) {
  Sim sim(job_on(4), automatic());
  sim.run_until(5);
  sim.send({1, "uid 1000 (alice)", SetAuto{false, "maintenance"}});
  sim.run_until(sim.now() + 1);
  sim.crash_core();
  sim.run_until(sim.now() + 5);
  EXPECT_FALSE(sim.core().status({}).auto_replan);
  EXPECT_EQ(sim.core().status({}).auto_reason, "off by uid 1000 (alice): maintenance");
  sim.send({2, "uid 1000 (alice)", SetAuto{true, "done"}});
  sim.run_until(sim.now() + 1);
  sim.crash_core();
  sim.run_until(sim.now() + 5);
  EXPECT_TRUE(sim.core().status({}).auto_replan);  // as configured

  Sim observing(job_on(4), {});
  observing.run_until(5);
  observing.send({1, "uid 1000 (alice)", SetAuto{true, "try"}});
  observing.run_until(observing.now() + 1);
  EXPECT_TRUE(observing.core().status({}).auto_replan);
  observing.crash_core();
  observing.run_until(observing.now() + 5);
  EXPECT_FALSE(observing.core().status({}).auto_replan);
}

TEST(Memory, WorkMovesBackLaterEachTimeANodeIsSlowAgain) {
  Options options = automatic();
  options.config.cooldown_s = 0;
  Sim sim(job_on(8), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  const std::string node = node_name(sim, 2);
  const auto microbatches = [&] { return sim.core().plan("small")->microbatches; };
  const auto healthy = microbatches();
  double last_wait_s = 0;
  for (int episode = 1; episode <= 3; ++episode) {
    SCOPED_TRACE(episode);
    Epoch before = epoch(sim);
    sim.slow(node, 1.6);
    ASSERT_TRUE(sim.run_till([&] { return epoch(sim) > before && sim.settled(); }, 200))
        << told(sim, "decision");
    sim.run_until(sim.now() + 20);
    before = epoch(sim);
    sim.slow(node, 1.0);
    const double well_at = sim.now();
    const bool crash = episode == 2;
    if (crash) {
      sim.run_until(sim.now() + 100);
      sim.crash_core(30);  // the quarantine must not be shorter for it
    }
    ASSERT_TRUE(sim.run_till([&] { return sim.disk().plans.rbegin()->first > before; }, 4000))
        << told(sim, "decision");
    const double wait_s = sim.now() - well_at;
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 60));
    sim.run_until(sim.now() + 20);
    EXPECT_GT(wait_s, 3 * last_wait_s);
    EXPECT_GE(wait_s, episode == 1 ? 0 : episode == 2 ? 600 : 2400);
    last_wait_s = wait_s;
    EXPECT_EQ(sim.core().decisions("small").front().reason_code, "recovery");
  }
  bool said = false;
  for (const DecisionRow& row : sim.core().decisions("small")) {
    said = said || row.reason_code == "flapping";
    if (row.reason_code == "flapping") {
      EXPECT_EQ(text(row, "decided_by"), "flap_quarantine_s 600");
    }
  }
  EXPECT_TRUE(said);
  EXPECT_EQ(microbatches(), healthy);
}

TEST(Memory, TwoFaultsWithinTheSettleTimeAreAnsweredByOnePlan) {
  Sim sim(job_on(8), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  sim.slow(node_name(sim, 6), 1.6);
  sim.run_until(sim.now() + 300);
  EXPECT_EQ(epoch(sim), Epoch(2)) << told(sim, "decision");
  const DecisionRow row = sim.core().decisions("small").front();
  EXPECT_EQ(row.reason_code, "micro_replan") << row.sentence;
  EXPECT_NE(row.sentence.find(node_name(sim, 1)), std::string::npos) << row.sentence;
  EXPECT_NE(row.sentence.find(node_name(sim, 6)), std::string::npos) << row.sentence;
}

TEST(Memory, TwoFaultsAFewStepsApartAreAnsweredByOnePlan) {
  for (const std::uint64_t apart : {0U, 1U, 2U, 3U}) {
    int one = 0;
    std::uint64_t steps = 0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      Options options = automatic();
      options.seed = seed;
      options.jitter = seed % 2 == 0 ? 0.005 : 0.03;
      Sim sim(job_on(16, 4), options);
      ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
      const std::uint64_t first = sim.last_step() + 20;
      sim.odd_steps([&](std::uint64_t step) {
        sim.slow(node_name(sim, 1), step >= first ? 1.5 : 1.0);
        sim.slow(node_name(sim, 10), step >= first + apart ? 1.4 : 1.0);
        return OddStep{};
      });
      ASSERT_TRUE(sim.run_till([&] { return !sim.events("replan_proposed").empty(); }, 60));
      steps += sim.last_step() + 1 - first;
      sim.run_until(sim.now() + 120);
      one += epoch(sim) == Epoch(2) ? 1 : 0;
    }
    EXPECT_GE(one, 11) << apart << " steps apart";
    // Clear faults take three steps, in noise four; then one more, and as many as the second is
    // late.
    EXPECT_LE(static_cast<double>(steps) / 12, 5.0 + static_cast<double>(apart));
  }
}

TEST(Memory, TheLossSoFarOutlastsARestart) {
  Options options = automatic();
  options.config.auto_replan = false;
  Sim sim(job_on(8), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 2), 1.6);
  sim.run_until(sim.now() + 120);
  const double lost_s = sim.disk().loss.lost_s;
  EXPECT_GT(lost_s, 20);
  sim.crash_core(1);
  sim.run_until(sim.now() + 60);
  EXPECT_GT(sim.disk().loss.lost_s, lost_s + 5);
  EXPECT_LT(sim.disk().loss.lost_s, 180);
}

TEST(Memory, ADecisionCarriesThePricesOfWhatItDidNotDo) {
  Sim sim(job_on(8, 2, 14, 1), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 2), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2); }, 60));
  const DecisionRow row = sim.core().decisions("small").front();
  ASSERT_EQ(row.reason_code, "micro_replan");
  EXPECT_EQ(number(row, "expected_episode_s"), 600);
  EXPECT_NE(row.sentence.find("to wait would lose"), std::string::npos) << row.sentence;
  std::vector<AnswerPrice> answers;
  for (const Evidence& entry : row.evidence) {
    if (entry.key == "answers") {
      answers = std::get<std::vector<AnswerPrice>>(entry.value);
    }
  }
  ASSERT_GE(answers.size(), 4U);
  EXPECT_EQ(answers[0].answer, "wait");
  EXPECT_EQ(answers[1].answer, "spare");
  EXPECT_TRUE(answers[1].chosen);
  for (const AnswerPrice& answer : answers) {
    EXPECT_TRUE(answer.chosen == (answer.answer == "spare"));
    EXPECT_TRUE(answer.loss_s >= answers[1].loss_s || answer.answer == "full_replan");
    EXPECT_LE(answer.loss_s, answers[0].loss_s);
  }
}

TEST(Memory, ASwitchThatCostsMuchIsMadeWhenTheLossEqualsItsCost) {
  Options options = automatic();
  options.config.episode_prior_s = 10;
  Sim sim(job_on(8, 2, 14, 0, 30), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.run_until(sim.now() + 20);
  sim.slow(node_name(sim, 2), 1.6);
  const double slow_at = sim.now();
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2); }, 600)) << told(sim, "decision");
  const auto decisions = sim.core().decisions("small");
  ASSERT_GE(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].reason_code, "micro_replan");
  EXPECT_EQ(decisions[1].reason_code, "not_worth_it");
  const double healthy_s = number(decisions[0], "healthy_step_s");
  const double cost_s = number(decisions[0], "switch_cost_s");
  const double rate = healthy_s / number(decisions[0], "step_after_s") -
                      healthy_s / number(decisions[0], "step_before_s");
  // Asked again at least every minute, and a switch takes its steps.
  const double due_s = cost_s / rate;
  EXPECT_GE(sim.now() - slow_at, due_s);
  EXPECT_LE(sim.now() - slow_at, due_s + 60 + 10);
  EXPECT_GT(number(decisions[0], "lost_so_far_s"), cost_s);
}

TEST(Memory, WhatIsPinnedKeepsItsLayers) {
  Sim sim(job_on(8), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.send({1, "uid 0 (root)", Pin{node_name(sim, 2), ""}});
  EXPECT_EQ(sim.replies()[0].outcome.error().code, ErrorCode::kInvalid);
  sim.send({2, "uid 0 (root)", Pin{node_name(sim, 2), "profiling"}});
  sim.run_until(sim.now() + 1);
  ASSERT_TRUE(sim.replies()[1].outcome);
  sim.send({3, "uid 0 (root)", Drain{node_name(sim, 2), "fan"}});
  EXPECT_EQ(sim.replies()[2].outcome.error().code, ErrorCode::kConflict);
  const auto plan_before = sim.core().plan("small");
  sim.slow(node_name(sim, 2), 1.8);
  sim.run_until(sim.now() + 30);
  sim.send({4, "uid 0 (root)", Replan{"small", false}});
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2) && sim.settled(); }, 60));
  const auto plan = sim.core().plan("small");
  for (std::uint32_t r = 0; r < plan->replicas(); ++r) {
    for (std::uint32_t s = 0; s < plan->stages(); ++s) {
      if (plan_before->placement[r][s].node == NodeId(2)) {
        EXPECT_EQ(plan->placement[r][s], plan_before->placement[r][s]);
        EXPECT_EQ(plan->splits_of(r)[s], plan_before->splits_of(r)[s]);
      }
    }
  }
  EXPECT_NE(plan->microbatches, plan_before->microbatches);
  sim.send({5, "uid 0 (root)", Unpin{node_name(sim, 2)}});
  sim.run_until(sim.now() + 1);
  EXPECT_FALSE(sim.disk().nodes.at(node_name(sim, 2)).pinned);
}

TEST(Memory, ThresholdsTakeEffectWhileItRuns) {
  Options options = automatic();
  options.config.min_gain_ratio = 0.9;
  Sim sim(job_on(8), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 2), 1.6);
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(epoch(sim), Epoch(1));
  const DecisionRow row = sim.core().decisions("small").front();
  EXPECT_EQ(row.reason_code, "gain_too_small");
  EXPECT_EQ(text(row, "decided_by"), "min_gain_ratio 0.9");
  options.config.min_gain_ratio = 0.02;
  sim.tell(Reconfigured{options.config, "min_gain_ratio 0.9 -> 0.02"});
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2); }, 400));
  EXPECT_EQ(told(sim, "config"), "configuration read again: min_gain_ratio 0.9 -> 0.02\n");
  EXPECT_TRUE(sim.core().status({}).auto_replan);
}

}  // namespace
}  // namespace tapas::daemon::sim
