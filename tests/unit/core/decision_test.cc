#include "daemon/core/decision.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

solver::Proposal good_proposal() {
  solver::Proposal proposal;
  proposal.improves = true;
  proposal.step_before_s = 10;
  proposal.step_after_s = 8;
  proposal.switch_s = 5;
  proposal.net_gain_s = 400;
  proposal.reason = "best is to move layers";
  return proposal;
}

Circumstances calm() {
  Circumstances out;
  out.cause = "node n1 computes 1.60 times as long as its equals";
  out.auto_replan = true;
  out.cooldown_left_s = -1;
  return out;
}

std::string code(const Circumstances& circumstances, const Result<solver::Proposal>& proposal) {
  const Choice choice = weigh({}, circumstances, proposal);
  EXPECT_NE(choice.sentence.find(circumstances.cause), std::string::npos) << choice.sentence;
  EXPECT_TRUE(choice.act || choice.retry_after_s > 0) << choice.code;
  return choice.code;
}

TEST(Decision, ActsWhenTheGainIsWorthTheSwitch) {
  const Choice choice = weigh({}, calm(), good_proposal());
  EXPECT_TRUE(choice.act);
  EXPECT_EQ(choice.code, "micro_replan");
}

TEST(Decision, HoldsForEachReasonByName) {
  solver::Proposal small = good_proposal();
  small.step_after_s = 9.9;
  EXPECT_EQ(code(calm(), small), "gain_too_small");
  solver::Proposal late = good_proposal();
  late.net_gain_s = -3;
  EXPECT_EQ(code(calm(), late), "not_worth_it");
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

TEST(Decision, WhatOutlivedThePriorIsExpectedToLast) {
  EXPECT_EQ(expected_rest_s(1800, 10), 1800);
  EXPECT_EQ(expected_rest_s(1800, 7200), 7200);
}

}  // namespace
}  // namespace tapas::daemon
