#include "ctl/proposal_text.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::ctl {
namespace {

json::Value small_proposal() {
  json::Value move = {{"replica", 0},    {"layer", 4},
                      {"from_stage", 1}, {"from", {{"node", "n1"}, {"devices", {0, 1}}}},
                      {"to_stage", 0},   {"to", {{"node", "n0"}, {"devices", {0, 1}}}},
                      {"bytes", 2e9},    {"start_s", 0.25},
                      {"end_s", 0.5}};
  json::Value proposal = {{"schema", "tapas.proposal/1"},
                          {"improves", true},
                          {"reason", "best is to re-cut"},
                          {"step_before_s", 2.0},
                          {"step_after_s", 1.5},
                          {"lower_bound_s", 1.2},
                          {"switch_s", 2.5},
                          {"net_gain_s", 400.0},
                          {"plans_evaluated", 120},
                          {"stopped", "time is up"}};
  proposal["tried"] =
      json::Value::array({{{"what", "pair"}, {"step_s", 1.6}, {"evaluations", 20}},
                          {{"what", "nodes"}, {"step_s", 1.5}, {"evaluations", 120}}});
  proposal["moves"] = json::Value::array({move});
  return proposal;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ProposalText, ShowsStepBoundSwitchSearchAndMoves) {
  const std::string text = proposal_text(small_proposal());
  EXPECT_EQ(text,
            "best is to re-cut\n\n"
            "step time   2.00 s now, 1.50 s after (25.0 % less)\n"
            "bound       no plan is below 1.20 s: the gap is at most 25.0 %\n"
            "switch      2.50 s of pause; net gain 6 min 40 s over the expected episode\n"
            "search      120 evaluations; ended because time is up\n\n"
            "TRIED  BEST STEP  EVALUATIONS\n"
            "pair      1.60 s           20\n"
            "nodes     1.50 s          120\n\n"
            "REPLICA  LAYERS  FROM             TO                 BYTES    STARTS      ENDS\n"
            "      0  4       stage 1 n1[0-1]  stage 0 n0[0-1]  2.00 GB  250.0 ms  500.0 ms\n"
            "1 layer to move, 2.00 GB\n\n"
            "Far from the bound: `tapasctl whatif --full` shows what a full replan would cost and "
            "gain.\n");
}

TEST(ProposalText, ThatStaysShowsTheGapOfThePlanThatRuns) {
  json::Value proposal = small_proposal();
  proposal["improves"] = false;
  proposal["step_before_s"] = proposal["step_after_s"] = 1.26;
  const std::string text = proposal_text(proposal);
  EXPECT_TRUE(says(text, "1.26 s now\n")) << text;
  EXPECT_TRUE(says(text, "at most 5.0 %")) << text;
  EXPECT_FALSE(says(text, "switch")) << text;
  EXPECT_FALSE(says(text, "to move")) << text;
  EXPECT_FALSE(says(text, "--full")) << text;
}

TEST(ProposalText, SetsTheFullReplanBesideIt) {
  json::Value proposal = small_proposal();
  proposal["solve_s"] = 0.01;
  proposal["tried"][0]["elapsed_s"] = 0.002;
  proposal["full"] = {{"without", "drained nodes"},
                      {"shape", "TP 2 x PP 2 x DP 2"},
                      {"step_after_s", 1.25},
                      {"switch_s", 30.0},
                      {"solve_s", 4.0},
                      {"net_gain_s", 380.0},
                      {"bytes", 9e11},
                      {"obstacles", {"needs 90 GB"}}};
  const std::string text = proposal_text(proposal);
  EXPECT_TRUE(says(text, "MICRO-REPLAN")) << text;
  EXPECT_TRUE(says(text, "900.0 GB")) << text;
  EXPECT_TRUE(says(text, "without drained nodes")) << text;
  EXPECT_TRUE(says(text, "Not while the job runs: needs 90 GB")) << text;
  EXPECT_TRUE(says(text, "AFTER")) << text;
  EXPECT_FALSE(says(text, "Far from")) << text;
  proposal["full"] = {{"error", "no plan fits"}};
  EXPECT_TRUE(says(proposal_text(proposal), "full replan  no plan fits\n"));
}

TEST(ProposalText, SurvivesAnAnswerWithoutItsFields) {
  EXPECT_TRUE(says(proposal_text(json::Value::object()), "no reason given"));
}

}  // namespace
}  // namespace tapas::ctl
