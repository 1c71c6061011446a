#include "ctl/replay.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace tapas::ctl {
namespace {

using daemon::Cause;

void ignore(double /*done*/) {}

std::vector<Episode> replayed(const std::string& text, ReplayOptions options = {}) {
  const auto trace = read_trace("run.csv", text, ignore);
  EXPECT_TRUE(trace) << (trace ? "" : trace.error().message);
  return trace ? replay(*trace, options, ignore) : std::vector<Episode>{};
}

std::string error_of(const std::string& text) {
  const auto trace = read_trace("run.csv", text, ignore);
  return trace ? "" : trace.error().message;
}

/// Compute of one microbatch by step (from 1), rank and stage; 4 replicas of 2 stages, rank numbers
/// 0, 10, 20, ...; all ranks end a step together.
std::string rank_steps(int steps, double noise,
                       const std::function<double(int, int, int, std::mt19937_64&)>& slowdown) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0, noise);
  std::string text = "step,rank,dp_rank,pp_stage,microbatches,compute_s,step_span_s\n";
  for (int step = 1; step <= steps; ++step) {
    std::vector<double> compute;
    double longest = 0;
    for (int rank = 0; rank < 8; ++rank) {
      compute.push_back(4 * std::exp(normal(random)) * slowdown(step, rank, rank % 2, random));
      longest = std::max(longest, compute.back());
    }
    for (int rank = 0; rank < 8; ++rank) {
      text += fmt::format("{},{},{},{},4,{:.6f},{:.6f}\n", step, 10 * rank, rank / 2, rank % 2,
                          compute[static_cast<std::size_t>(rank)], longest * 1.2);
    }
  }
  return text;
}

TEST(Replay, NamesTheSlowRankAndItsEndWithTheLevels) {
  const auto episodes = replayed(rank_steps(200, 0.01, [](int step, int rank, int, auto&) {
    return rank == 5 && step > 60 && step <= 120 ? 1.5 : 1.0;
  }));
  ASSERT_EQ(episodes.size(), 1U);
  const Episode& episode = episodes[0];
  EXPECT_EQ(episode.verdict.cause, Cause::kDevice);
  ASSERT_EQ(episode.verdict.culprits.size(), 1U);
  EXPECT_EQ(episode.verdict.culprits[0].node, "rank-50");
  EXPECT_EQ(episode.verdict.since.step, 61U);
  EXPECT_LE(episode.verdict_step, 66U);
  ASSERT_TRUE(episode.end_step);
  EXPECT_GE(*episode.end_step, 121U);
  EXPECT_LE(*episode.end_step, 128U);
  EXPECT_NEAR(episode.verdict.before, 1.0, 0.03);
  EXPECT_NEAR(episode.verdict.after, 1.5, 0.05);
  EXPECT_GT(episode.verdict.confidence, 6.0);
  EXPECT_EQ(episode.verdict.equals, (std::vector<RankId>{RankId(1), RankId(3), RankId(7)}));
}

TEST(Replay, AStageThatIsTooHeavyFromTheStartIsNoNodesFault) {
  const auto episodes = replayed(
      rank_steps(60, 0.01, [](int, int, int stage, auto&) { return stage == 1 ? 1.7 : 1.0; }));
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kHeavyStage) << episodes[0].verdict.sentence;
  EXPECT_EQ(episodes[0].verdict.stages, (std::vector<std::uint32_t>{1}));
}

TEST(Replay, AnotherSlowRankInEachStepIsTheData) {
  const auto episodes = replayed(rank_steps(150, 0.01, [](int step, int rank, int, auto&) {
    return rank == (step * 5) % 8 ? 1.5 : 1.0;
  }));
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kData) << episodes[0].verdict.sentence;
  EXPECT_TRUE(episodes[0].verdict.culprits.empty());
}

/// 8 replicas of one rank; from step 61 on rank 3 is `late_s` late with its input or, for 0, rank 5
/// is slow by 20 %. Batches differ in their tokens, told or not.
std::string loading_steps(double late_s, bool told) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal(0, 1);
  std::string text = fmt::format("step,rank,dp_rank,compute_s,input_wait_s,step_span_s{}\n",
                                 told ? ",work_tokens" : "");
  for (int step = 1; step <= 160; ++step) {
    std::vector<double> tokens;
    for (int rank = 0; rank < 8; ++rank) {
      tokens.push_back(std::round(4096 * std::exp(0.15 * normal(random))));
    }
    const double wait_s = step > 60 ? late_s : 0.0;
    const double span_s = *std::max_element(tokens.begin(), tokens.end()) / 4000 + wait_s;
    for (int rank = 0; rank < 8; ++rank) {
      const double own = tokens[static_cast<std::size_t>(rank)];
      text +=
          fmt::format("{},{},{},{:.6f},{:.6f},{:.6f}{}\n", step, rank, rank,
                      own / 4096 * std::exp(0.01 * normal(random)) *
                          (late_s == 0 && rank == 5 && step > 60 ? 1.2 : 1.0),
                      rank == 3 ? wait_s : 0.0, span_s, told ? fmt::format(",{:.0f}", own) : "");
    }
  }
  return text;
}

TEST(Replay, TakesWaitsForInputAndTokens) {
  const auto episodes = replayed(loading_steps(0.6, true));
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kInput) << episodes[0].verdict.sentence;
  ASSERT_EQ(episodes[0].verdict.late.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.late[0].node, "rank-3");
  const auto trace = read_trace("run.csv", loading_steps(0.6, true), ignore);
  EXPECT_EQ(replay_json(*trace, episodes)["episodes"][0]["culprit_ranks"], json::Value::array({3}));
  const auto slow = replayed(loading_steps(0, true));
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].verdict.culprits.at(0).node, "rank-5") << slow[0].verdict.sentence;
  EXPECT_LE(slow[0].verdict_step, 66U);
  const auto untold = replayed(loading_steps(0, false));
  EXPECT_TRUE(untold.empty() || untold[0].verdict_step > 80) << "without tokens it is in the noise";
  EXPECT_NE(error_of("step,rank,compute_s,input_wait_s\n1,0,1.0,-1\n").find("input_wait_s"),
            std::string::npos);
}

TEST(Replay, QuietAndOddStepsGiveNothing) {
  EXPECT_TRUE(replayed(rank_steps(400, 0.02, [](int step, int, int, auto&) {
                return step % 50 == 0 ? 3.0 : 1.0;  // All ranks: a checkpoint without its tag.
              })).empty());
}

std::string step_times(int rows, int gap, const std::function<double(int)>& seconds) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0, 0.005);
  std::string text = "step,iteration_time_s\n";
  for (int row = 1; row <= rows; ++row) {
    text += fmt::format("{},{:.4f}\n", row * gap, seconds(row) * std::exp(normal(random)));
  }
  return text;
}

TEST(Replay, StepTimesAloneGiveAnEpisodeWithoutACulprit) {
  const auto episodes = replayed(step_times(1000, 1, [](int row) {
    return (row % 20 == 0 ? 1.45 : 1.0) * (row > 400 && row <= 700 ? 1.15 : 1.0) *
           (row % 220 == 1 ? 8.0 : 1.0);
  }));
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kUnknown);
  EXPECT_TRUE(episodes[0].verdict.culprits.empty());
  EXPECT_LE(episodes[0].verdict_step, 500U);
  ASSERT_TRUE(episodes[0].end_step);
  EXPECT_GT(*episodes[0].end_step, 700U);
}

TEST(Replay, AMeanIsManyStepsButMayHideOneOddOne) {
  const std::string text = step_times(60, 100, [](int row) {
    return row == 25 ? 4.0 : row % 10 == 0 ? 1.2 : 1.0;  // A restart's first step takes 21.
  });
  const auto episodes = replayed(text, {.averaged = true});
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_GE(episodes[0].verdict_step, 2401U);
  EXPECT_LE(episodes[0].verdict_step, 2500U);
  EXPECT_TRUE(replayed(text).empty());
}

TEST(Trace, SaysWhereAndWhatWasExpected) {
  const std::string head = "step,iteration_time_s\n";
  EXPECT_EQ(error_of(head + "1,2.0\n2,fast\n"),
            "run.csv:3: iteration_time_s is \"fast\"; expected seconds above 0, at most 1000000");
  EXPECT_EQ(error_of(head + "1,2.0\n2\n"), "run.csv:3: 1 fields; expected 2, as in the header");
  EXPECT_NE(error_of(head + "5,2.0\n4,2.0\n").find("run.csv:3: step is \"4\"; expected 5 or more"),
            std::string::npos);
  EXPECT_NE(error_of(head + "1,2.0\n1000000000000,2.0\n").find("expected at most 1000000 after"),
            std::string::npos);
  EXPECT_NE(error_of(head).find("no rows"), std::string::npos);
  EXPECT_NE(error_of("time,speed\n1,2\n").find("the header is \"time,speed\"; expected"),
            std::string::npos);
  EXPECT_NE(error_of("").find("run.csv:1"), std::string::npos);
  const std::string ranks = "step,rank,pp_stage,compute_s\n";
  EXPECT_NE(error_of(ranks + "1,0,0,1\n1,0,0,1\n").find("rank is \"0\"; expected each one once"),
            std::string::npos);
  EXPECT_NE(error_of(ranks + "1,0,0,1\n2,0,3,1\n").find("pp_stage is \"3\"; expected 0"),
            std::string::npos);
  EXPECT_NE(error_of(ranks + "1,-1,0,1\n").find("rank is \"-1\""), std::string::npos);
  for (const char* bad : {"nan", "inf", "-1", "0", "1e9", "", "1 "}) {
    EXPECT_NE(error_of(ranks + fmt::format("1,0,0,{}\n", bad)).find("run.csv:2: compute_s"),
              std::string::npos)
        << bad;
  }
}

TEST(Replay, TheJsonCarriesTheNumbersOfTheVerdict) {
  const auto trace = read_trace(
      "run.csv",
      rank_steps(90, 0.01,
                 [](int step, int rank, int, auto&) { return rank == 2 && step > 60 ? 1.4 : 1.0; }),
      ignore);
  ASSERT_TRUE(trace);
  const json::Value out = replay_json(*trace, replay(*trace, {}, ignore));
  EXPECT_EQ(out.at("schema"), "tapas.replay/1");
  ASSERT_EQ(out.at("episodes").size(), 1U);
  const json::Value& episode = out.at("episodes")[0];
  EXPECT_EQ(episode.at("cause"), "device");
  EXPECT_EQ(episode.at("culprit_ranks"), (json::Value{20}));
  EXPECT_EQ(episode.at("compared_ranks"), (json::Value{0, 40, 60}));
  EXPECT_EQ(episode.at("since_step"), 61);
  EXPECT_TRUE(episode.at("end_step").is_null());
  EXPECT_NEAR(episode.at("level_after").get<double>(), 1.4, 0.05);
}

// ---- real jobs, where the project's data folder is present

class RealRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) {
      GTEST_SKIP() << "skipped: the traces are not here";
    }
  }
  static std::vector<Episode> run(const std::string& name, bool averaged = false) {
    std::ifstream file(kFolder + name);
    std::ostringstream text;
    text << file.rdbuf();
    return replayed(text.str(), {averaged});
  }
  static inline const std::string kFolder = TAPAS_SOURCE_DIR "/../shared/data/traces/";
};

TEST_F(RealRuns, OneSlowWorkerIsTheDeviceOfThatRank) {
  const auto episodes = run("whatif_AR_rank_steps.csv");
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kDevice);
  ASSERT_EQ(episodes[0].verdict.culprits.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.culprits[0].node, "rank-0");
  EXPECT_NEAR(episodes[0].verdict.slowdown, 2.36, 0.1);
  EXPECT_FALSE(episodes[0].end_step);
}

TEST_F(RealRuns, AHeavyLastStageShouldGiveLayersAway) {
  const auto episodes = run("whatif_ST_rank_steps.csv");
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kHeavyStage);
  EXPECT_EQ(episodes[0].verdict.stages, (std::vector<std::uint32_t>{3}));
  EXPECT_TRUE(episodes[0].verdict.culprits.empty());
}

TEST_F(RealRuns, UnevenSequencesAreTheDataAndTheLastStageIsHeavyToo) {
  const auto episodes = run("whatif_SE_rank_steps.csv");
  ASSERT_EQ(episodes.size(), 2U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kHeavyStage);
  EXPECT_EQ(episodes[0].verdict.stages, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(episodes[1].verdict.cause, Cause::kData);
}

TEST_F(RealRuns, QuietNoisyAndSpikyJobsHaveNoEpisode) {
  EXPECT_TRUE(run("mg_gpt15b_a100_quiet.csv", true).empty());
  for (const char* name : {"mg_mixtral_h100_spikes.csv", "mg_gpt_tp2pp2_h100_drift.csv",
                           "mg_gpt_tp4cp2_h100_noisy.csv"}) {
    EXPECT_TRUE(run(name).empty()) << name;
  }
}

TEST_F(RealRuns, EachPlateauIsOneEpisodeFromItsFirstStepToItsLast) {
  struct Plateau {
    const char* name;
    bool averaged;
    std::uint64_t first, last, within;
  };
  const Plateau plateaus[] = {{"mg_dsv3_h100_sporadic.csv", false, 29'950, 30'645, 100},
                              {"mg_dsv3_gb200_burst.csv", false, 24'570, 25'920, 150}};
  for (const Plateau& plateau : plateaus) {
    const auto episodes = run(plateau.name, plateau.averaged);
    ASSERT_EQ(episodes.size(), 1U) << plateau.name;
    EXPECT_LE(episodes[0].verdict_step, plateau.first + plateau.within) << plateau.name;
    EXPECT_NEAR(static_cast<double>(episodes[0].verdict.since.step),
                static_cast<double>(plateau.first), 10);
    ASSERT_TRUE(episodes[0].end_step);
    EXPECT_LE(*episodes[0].end_step, plateau.last + 100) << plateau.name;
  }
  const auto episodes = run("mg_gpt15b_h100_plateau.csv", true);
  ASSERT_EQ(episodes.size(), 2U);
  EXPECT_LE(episodes[0].verdict_step, 2100U);  // Within the first row of the burst.
  EXPECT_LE(*episodes[0].end_step, 2400U);
  EXPECT_GE(episodes[1].verdict_step, 27'101U);
  EXPECT_LE(episodes[1].verdict_step, 27'300U);
  EXPECT_LE(*episodes[1].end_step, 35'900U);
}

}  // namespace
}  // namespace tapas::ctl
