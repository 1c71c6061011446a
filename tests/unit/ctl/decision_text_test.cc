#include "ctl/decision_text.h"

#include <gtest/gtest.h>

namespace tapas::ctl {
namespace {

TEST(DecisionText, ShowsLevelsAgainstTheBoundAndTheLoopsTimes) {
  const json::Value decision = {
      {"decision", 2},
      {"epoch", 2},
      {"reason_code", "micro_replan"},
      {"sentence", "n37 takes 1.6 times as long; two layers move."},
      {"time", "2026-03-01T10:20:30.123Z"},
      {"evidence", {{"node", "n37"},           {"slowdown", 1.6},
                    {"ranks", "296, 297"},     {"devices", "GPU-a, GPU-b"},
                    {"ranks_compared", 128},   {"compared_with", "256, 257, ..."},
                    {"confidence_sigma", 8.5}, {"healthy_step_s", 17.0},
                    {"slow_step_s", 25.0},     {"step_after_s", 20.5},
                    {"lower_bound_s", 20.0},   {"observed_after_s", 20.6},
                    {"detect_steps", 3},       {"detect_s", 75.0},
                    {"solve_s", 0.004},        {"plans_evaluated", 350},
                    {"first_step_s", 21.0},    {"switch_s", 3.5},
                    {"layers_moved", 2},       {"bytes_moved", 51.2e9},
                    {"verify", "kept"}}}};
  EXPECT_EQ(decision_text(decision),
            "Decision 2 of 03-01 10:20:30.123 UTC: micro_replan, epoch 2\n"
            "n37 takes 1.6 times as long; two layers move.\n"
            "\n"
            "STEP TIME                            OVER BOUND\n"
            "healthy                     17.00 s       0.850\n"
            "slow                        25.00 s       1.250\n"
            "after a switch, promised    20.50 s       1.025\n"
            "after the switch, observed  20.60 s       1.030\n"
            "bound: no plan is faster    20.00 s       1.000\n"
            "\n"
            "cause       n37, 1.60 times as slow\n"
            "ranks       296, 297\n"
            "devices     GPU-a, GPU-b\n"
            "compared    128 ranks, 256, 257, ...\n"
            "detection   3 steps, 75.00 s of job time\n"
            "solve       4.0 ms, 350 evaluations, 21.00 s a step by the first answer\n"
            "switch      3.50 s of job time, 2 layers, 51.2 GB\n"
            "verify      kept\n"
            "numbers     confidence_sigma 8.5\n");
}

TEST(DecisionText, ShowsThePricesOfTheAnswersThatLost) {
  const std::string text =
      decision_text({{"decision", 4},
                     {"reason_code", "micro_replan"},
                     {"evidence",
                      {{"answers",
                        {{{"answer", "wait"}, {"step_s", 25.0}, {"cost_s", 0.0}, {"loss_s", 192.0}},
                         {{"answer", "layers"},
                          {"step_s", 20.5},
                          {"cost_s", 2.2},
                          {"loss_s", 104.3},
                          {"chosen", true}},
                         {{"answer", "full_replan"},
                          {"step_s", 17.0},
                          {"cost_s", 2.2},
                          {"loss_s", 2.2},
                          {"note", "at least"}}}},
                       {"expected_episode_s", 600.0},
                       {"expected_because", "what causes like host last in the mean"},
                       {"expected_loss_s", 192.0},
                       {"lost_so_far_s", 40.0},
                       {"decided_by", "min_gain_ratio 0.02"}}}});
  EXPECT_NE(text.find("\n"
                      "ANSWER          STEP    COST        LOST\n"
                      "wait         25.00 s     0 s  3 min 12 s\n"
                      "layers       20.50 s  2.20 s  1 min 44 s  taken\n"
                      "full_replan  17.00 s  2.20 s      2.20 s  at least\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("outlook     10 min 00 s more, what causes like host last in the mean, "
                      "3 min 12 s lost by waiting, 40.00 s lost so far\n"
                      "decided by  min_gain_ratio 0.02\n"),
            std::string::npos)
      << text;
}

TEST(DecisionText, SaysWhatASwitchWouldHaveMoved) {
  const std::string text = decision_text(
      {{"decision", 3},
       {"reason_code", "gain_too_small"},
       {"evidence",
        {{"node", "n37"}, {"slowdown", 1.0}, {"layers_moved", 2}, {"bytes_moved", 51.2e9}}}});
  EXPECT_NE(text.find("cause       n37, back to normal\n"), std::string::npos) << text;
  EXPECT_NE(text.find("would move  2 layers, 51.2 GB\n"), std::string::npos) << text;
}

TEST(DecisionText, NeedsNoEvidenceAtAll) {
  EXPECT_EQ(decision_text({{"decision", 1}, {"sentence", "left alone"}}),
            "Decision 1 of  UTC: , epoch 0\nleft alone\n");
  EXPECT_FALSE(decision_text(json::Value::array()).empty());
}

}  // namespace
}  // namespace tapas::ctl
