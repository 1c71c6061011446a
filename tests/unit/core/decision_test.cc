#include "daemon/core/decision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tapas::daemon {
namespace {

solver::Proposal good_proposal() {
  solver::Proposal proposal;
  proposal.improves = true;
  proposal.step_before_s = 10;
  proposal.step_after_s = 8;
  proposal.switch_s = 5;
  proposal.net_gain_s = 400;
  proposal.change = "move layers";
  return proposal;
}

Circumstances calm() {
  Circumstances out;
  out.cause = "node n1 computes 1.60 times as long as its equals";
  out.auto_replan = true;
  out.cooldown_left_s = -1;
  return out;
}

/// A compute fault on a job that takes 6 s a step when healthy.
Outlook ahead(double rest_s = 1800, double lost_s = 0) {
  return {6, rest_s, "what causes like device last in the mean", lost_s};
}

Choice choose(const Circumstances& circumstances, const Result<solver::Proposal>& proposal,
              const Outlook& outlook = ahead()) {
  return weigh({}, circumstances, outlook, proposal,
               price(outlook, circumstances.trigger, proposal ? proposal->plan : solver::Plan{},
                     proposal, {}, 0));
}

std::string code(const Circumstances& circumstances, const Result<solver::Proposal>& proposal,
                 const Outlook& outlook = ahead()) {
  const Choice choice = choose(circumstances, proposal, outlook);
  EXPECT_NE(choice.sentence.find(circumstances.cause), std::string::npos) << choice.sentence;
  EXPECT_TRUE(choice.act || choice.retry_after_s > 0) << choice.code;
  EXPECT_FALSE(choice.decided_by.empty()) << choice.code;
  return choice.code;
}

TEST(Decision, ActsWhenTheGainIsWorthTheSwitch) {
  const Choice choice = choose(calm(), good_proposal());
  EXPECT_TRUE(choice.act);
  EXPECT_EQ(choice.code, "micro_replan");
  EXPECT_NE(choice.sentence.find("to wait would lose 720.0 s over the 1800 s"), std::string::npos)
      << choice.sentence;
}

TEST(Decision, HoldsWhereTheModelExplainsLessThanAThirdOfTheLoss) {
  Circumstances now = calm();
  now.usual_step_s = 6;
  now.observed_step_s = 10;  // the proposal says 10, too
  EXPECT_EQ(code(now, good_proposal()), "micro_replan");
  now.observed_step_s = 17.9;
  EXPECT_EQ(code(now, good_proposal()), "micro_replan");
  now.observed_step_s = 18.1;
  const Choice choice = choose(now, good_proposal());
  EXPECT_EQ(choice.code, "unexplained");
  EXPECT_NE(choice.sentence.find("a step takes 18.100 s instead of 6.000 s"), std::string::npos)
      << choice.sentence;
  EXPECT_NE(choice.sentence.find("4.000 s of the 12.100 s"), std::string::npos) << choice.sentence;
  // An operator knows better, and what has recovered explains nothing.
  now.trigger = Trigger::kOperator;
  EXPECT_EQ(code(now, good_proposal()), "operator_replan");
  now.trigger = Trigger::kRecovery;
  EXPECT_EQ(code(now, good_proposal()), "recovery");
  // Little is noise.
  now.trigger = Trigger::kCulprit;
  solver::Proposal little = good_proposal();
  little.step_before_s = 6.1;
  little.step_after_s = 5.9;
  now.observed_step_s = 6.5;
  now.step_noise = 0.03;
  EXPECT_EQ(code(now, little), "micro_replan");
  now.step_noise = 0.02;
  EXPECT_EQ(code(now, little), "unexplained");
}

TEST(Decision, HoldsForEachReasonByName) {
  solver::Proposal small = good_proposal();
  small.step_after_s = 9.9;
  EXPECT_EQ(code(calm(), small), "gain_too_small");
  EXPECT_EQ(code(calm(), good_proposal(), ahead(20)), "not_worth_it");
  solver::Proposal none;
  none.reason = "the plan stays";
  EXPECT_EQ(code(calm(), none), "no_better_plan");
  EXPECT_EQ(code(calm(), fail(ErrorCode::kInfeasible, "no room")), "replan_failed");

  Circumstances now = calm();
  now.auto_replan = false;
  EXPECT_EQ(code(now, good_proposal()), "observe_only");
  now = calm();
  now.cooldown_left_s = 12;
  EXPECT_EQ(code(now, good_proposal()), "cooldown");
  now = calm();
  now.budget_left = false;
  EXPECT_EQ(code(now, good_proposal()), "budget");
  now = calm();
  now.quarantine_left_s = 100;
  EXPECT_EQ(code(now, good_proposal()), "quarantined");
  now = calm();
  now.obstacle = "2 agents are away";
  EXPECT_EQ(code(now, good_proposal()), "agents_missing");
  now = calm();
  now.defect = "stage 2 has no memory";
  EXPECT_EQ(code(now, good_proposal()), "plan_refused");
}

TEST(Decision, ALossIsWhatAHealthyJobWouldHaveDoneMeanwhile) {
  EXPECT_DOUBLE_EQ(loss_s(ahead(1000), 6, 0), 0);
  EXPECT_DOUBLE_EQ(loss_s(ahead(1000), 12, 0), 500);
  EXPECT_DOUBLE_EQ(loss_s(ahead(1000), 12, 100), 100 + 450);
  EXPECT_DOUBLE_EQ(loss_s(ahead(1000), 6, 2000), 1000);  // it ends in the pause
  // A 30 s pause equals the loss of so many seconds at +5 %, +10 %, twice and four times.
  for (const auto& [ratio, seconds] :
       {std::pair{1.05, 630.0}, {1.1, 330.0}, {2.0, 60.0}, {4.0, 40.0}}) {
    EXPECT_NEAR(loss_s({6, seconds, "", 0}, 6 * ratio, 0), 30, 0.01);
  }
}

TEST(Decision, WaitsUntilTheLossThatASwitchWouldHaveAvoidedEqualsItsCost) {
  // Half of what is lost can be avoided: 10 s against 8 s a step, 6 s healthy; the switch costs 5.
  const auto avoidable = [](double lost_s) { return lost_s * (0.4 - 0.25) / 0.4; };
  for (double lost_s = 0; lost_s < 30; lost_s += 0.5) {
    const Choice choice = choose(calm(), good_proposal(), ahead(20, lost_s));
    EXPECT_EQ(choice.act, avoidable(lost_s) >= 5) << lost_s;
    EXPECT_EQ(choice.act, choice.decided_by == "loss so far") << lost_s;
    if (!choice.act) {
      // Asked again when that is so: 0.15 s are avoidable each second.
      EXPECT_NEAR(choice.retry_after_s, std::clamp((5 - avoidable(lost_s)) / 0.15, 5.0, 60.0),
                  1e-9);
    }
  }
}

/// Two replicas of two stages on nodes 0 to 3.
solver::Plan plan_of(std::vector<std::uint32_t> nodes, std::vector<std::uint32_t> cuts = {0, 4},
                     std::vector<std::uint32_t> microbatches = {4, 4}) {
  solver::Plan plan;
  plan.pp_splits = std::move(cuts);
  plan.microbatches = std::move(microbatches);
  plan.placement = {{{NodeId(nodes[0]), {0, 1}}, {NodeId(nodes[1]), {0, 1}}},
                    {{NodeId(nodes[2]), {0, 1}}, {NodeId(nodes[3]), {0, 1}}}};
  return plan;
}

TEST(Decision, FollowsWhatWandersOnlyWhenThatPaysThereAndBack) {
  // To wait loses 20 s of 50, to switch 16.25 s, and 5 s more when the level moves again.
  Outlook outlook = ahead(50);
  EXPECT_EQ(code(calm(), good_proposal(), outlook), "micro_replan");
  outlook.wanders = true;
  EXPECT_EQ(code(calm(), good_proposal(), outlook), "not_worth_it");
  EXPECT_NE(choose(calm(), good_proposal(), outlook).sentence.find("5.0 s when it moves again"),
            std::string::npos);
  for (double lost_s = 0; lost_s < 40; lost_s += 0.5) {
    outlook.lost_s = lost_s;
    EXPECT_EQ(choose(calm(), good_proposal(), outlook).act, lost_s * (0.4 - 0.25) / 0.4 >= 10)
        << lost_s;
  }
}

TEST(Decision, NamesAChangeByTheMostThatItDoes) {
  const solver::Plan old = plan_of({0, 1, 2, 3});
  EXPECT_EQ(answer_of(old, old), Answer::kWait);
  EXPECT_EQ(answer_of(old, plan_of({0, 1, 2, 3}, {0, 4}, {3, 5})), Answer::kMicrobatches);
  EXPECT_EQ(answer_of(old, plan_of({0, 1, 2, 3}, {0, 3}, {3, 5})), Answer::kLayers);
  EXPECT_EQ(answer_of(old, plan_of({1, 0, 2, 3}, {0, 3})), Answer::kNodes);
  EXPECT_EQ(answer_of(old, plan_of({0, 4, 2, 3})), Answer::kSpare);
  solver::Plan narrower = old;
  narrower.placement[0][0].devices = {1};
  EXPECT_EQ(answer_of(old, narrower), Answer::kLayers);
}

TEST(Decision, TakesTheAnswerThatLosesLeastAndKeepsThePricesOfTheOthers) {
  const solver::Plan old = plan_of({0, 1, 2, 3});
  solver::Proposal spare = good_proposal();
  spare.plan = plan_of({0, 4, 2, 3});
  spare.step_after_s = 6;
  spare.switch_s = 60;
  solver::Proposal counts = good_proposal();
  counts.plan = plan_of({0, 1, 2, 3}, {0, 4}, {3, 5});
  counts.step_after_s = 7.5;
  counts.switch_s = 2;
  const auto answers = [&](double rest_s, Trigger trigger = Trigger::kCulprit) {
    return price(ahead(rest_s), trigger, old, spare, {counts}, 5.5);
  };
  const Priced brief = answers(200);
  ASSERT_EQ(brief.prices.size(), 4U);
  EXPECT_EQ(brief.prices[0].answer, "wait");
  EXPECT_DOUBLE_EQ(brief.prices[0].loss_s, 200 * 0.4);
  EXPECT_EQ(brief.prices[1].answer, "spare");
  EXPECT_DOUBLE_EQ(brief.prices[1].loss_s, 60);
  EXPECT_EQ(brief.prices[2].answer, "microbatches");
  EXPECT_DOUBLE_EQ(brief.prices[2].loss_s, 2 + 198 * 0.2);
  EXPECT_EQ(brief.prices[3].answer, "full_replan");
  EXPECT_EQ(brief.answer, Answer::kMicrobatches);
  EXPECT_EQ(brief.best, 2U);
  EXPECT_EQ(answers(600).answer, Answer::kSpare);
  // An operator gets what was proposed.
  EXPECT_EQ(answers(200, Trigger::kOperator).answer, Answer::kSpare);
}

TEST(Decision, AnOperatorIsHeldBackOnlyByWhatProtectsThePlan) {
  Circumstances forced = calm();
  forced.trigger = Trigger::kOperator;
  forced.auto_replan = false;
  forced.cooldown_left_s = 50;
  forced.budget_left = false;
  forced.quarantine_left_s = 50;
  EXPECT_EQ(code(forced, good_proposal()), "operator_replan");
  forced.defect = "layer 3 is nowhere";
  EXPECT_EQ(code(forced, good_proposal()), "plan_refused");
}

TEST(Decision, ARepeatedSwitchForOneNodeWaitsLongerEachTime) {
  const CoreConfig config;
  double total = 0;
  std::size_t switches = 1;
  while (total < 3600) {
    const double wait = cooldown_s(config, switches);
    EXPECT_GE(wait, cooldown_s(config, switches - 1));
    total += wait;
    ++switches;
  }
  EXPECT_LE(switches, 6U);
}

TEST(Decision, AnEpisodeIsExpectedToLastAsItsCauseDoesUntilItOutlivesThat) {
  CoreConfig config;
  EXPECT_EQ(episode_prior_s(config, Cause::kDevice, 64), 600);
  EXPECT_EQ(episode_prior_s(config, Cause::kJobWide, 64), 1440);
  EXPECT_EQ(episode_prior_s(config, Cause::kDevice, 512), 4320);
  config.episode_prior_s = 100;
  EXPECT_EQ(episode_prior_s(config, Cause::kDevice, 512), 100);
  EXPECT_EQ(expected_rest_s(600, 10), 600);
  EXPECT_EQ(expected_rest_s(600, 7200), 7200);
}

}  // namespace
}  // namespace tapas::daemon
