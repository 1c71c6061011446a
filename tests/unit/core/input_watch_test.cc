#include "daemon/core/input_watch.h"

#include "daemon/core/attribution.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

/// Whole steps of a job of two stages: all compute alike, `wait` tells what a rank waits for input.
class Loading {
 public:
  explicit Loading(std::uint32_t replicas)
      : job(solver::testing::small_job(6, replicas * 2, 2, replicas * 4)),
        plan(solver::testing::simple_plan(job, {0, 4}, replicas, 2)),
        roles(job, plan),
        watch(job.cluster.device_count()) {
    watch.follow(roles);
  }
  using Wait = std::function<double(std::uint64_t, std::uint32_t)>;
  /// The verdicts of the next steps; `felt`: the step takes as much longer as the longest wait.
  std::vector<Verdict> run(int count, const Wait& wait, bool felt = true, std::uint32_t flags = 0) {
    std::normal_distribution<double> noise(1, 0.005);
    std::vector<Verdict> verdicts;
    for (int i = 0; i < count; ++i) {
      WholeStep whole;
      whole.step = ++steps;
      whole.flags = flags;
      whole.ranks.resize(roles.all().size());
      double longest = 0;
      for (std::uint32_t r = 0; r < whole.ranks.size(); ++r) {
        whole.ranks[r] = {true,           0, roles.of(RankId(r)).compute_s * noise(random_), 0,
                          wait(steps, r), 0};
        longest = std::max(longest, whole.ranks[r].input_s);
      }
      const double wall_s = 1.4 * noise(random_) + (felt ? longest : 0);
      time_s += wall_s;
      for (RankStep& rank : whole.ranks) {
        rank.wall_s = wall_s;
        rank.end_s = time_s;
      }
      if (watch.observe(whole) && watch.verdict_due()) {
        Verdict verdict = attribute(watch.findings(), roles, job.cluster);
        if (verdict.cause != Cause::kNothing) {
          take_note(watch, verdict);
          verdicts.push_back(verdict);
        }
      }
    }
    return verdicts;
  }

  solver::Job job;
  solver::Plan plan;
  Roles roles;
  Watch watch;
  std::uint64_t steps = 0;
  double time_s = 1.7e9;

 private:
  std::mt19937_64 random_{3};
};

double none(std::uint64_t /*step*/, std::uint32_t /*rank*/) { return 0; }

TEST(InputWatch, ALateLoaderIsNamedWithItsWaitAndItsEnd) {
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    SCOPED_TRACE(replicas);
    Loading job(replicas);
    EXPECT_TRUE(job.run(200, none).empty());
    const auto late = [](std::uint64_t, std::uint32_t rank) { return rank == 1 ? 0.4 : 0.0; };
    const auto verdicts = job.run(60, late);
    ASSERT_EQ(verdicts.size(), 1U);
    const Verdict& verdict = verdicts[0];
    EXPECT_EQ(verdict.cause, Cause::kInput) << verdict.sentence;
    EXPECT_TRUE(verdict.culprits.empty()) << "nothing may be moved";
    ASSERT_EQ(verdict.late.size(), 1U);
    EXPECT_EQ(verdict.late[0].ranks, std::vector<RankId>{RankId(1)});
    EXPECT_EQ(verdict.since.step, 201U);
    EXPECT_LE(verdict.steps, 12U);
    EXPECT_NEAR(verdict.before, 0, 0.01);
    EXPECT_NEAR(verdict.after, 0.4, 0.05);
    EXPECT_NEAR(verdict.slowdown, 1.8 / 1.4, 0.03);
    EXPECT_TRUE(job.watch.any_late());
    EXPECT_TRUE(job.run(20, none).empty());
    EXPECT_EQ(job.watch.take_input_recovered(), std::vector<RankId>{RankId(1)});
    EXPECT_FALSE(job.watch.any_late());
  }
}

TEST(InputWatch, WhoIsLateFromTheStartIsNamedToo) {
  Loading job(4);
  const auto verdicts =
      job.run(60, [](std::uint64_t, std::uint32_t rank) { return rank == 4 ? 0.5 : 0.01; });
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].cause, Cause::kInput) << verdicts[0].sentence;
  EXPECT_EQ(verdicts[0].late[0].ranks, std::vector<RankId>{RankId(4)});
}

TEST(InputWatch, StallsAfterCheckpointsAndLoneOnesSayNothing) {
  Loading job(4);
  std::mt19937_64 random(5);
  const auto verdicts = job.run(3000, [&](std::uint64_t step, std::uint32_t rank) {
    const bool after_checkpoint = step > 100 && step % 100 < 5 && rank == step / 100 % 16;
    return after_checkpoint ? 2.0 : random() % 500 == 0 ? 1.0 : 0.002;
  });
  EXPECT_TRUE(verdicts.empty()) << verdicts[0].sentence;
}

TEST(InputWatch, WhenEverybodyWaitsItIsTheWholeJobsInput) {
  // All ranks; or of each node the one that loads for all.
  for (const std::uint32_t every : {1U, 2U}) {
    Loading job(4);
    const auto usual = [&](std::uint64_t, std::uint32_t rank) {
      return rank % every == 0 ? 0.02 : 0;
    };
    EXPECT_TRUE(job.run(200, usual).empty());
    std::mt19937_64 random(7);
    const auto verdicts = job.run(60, [&](std::uint64_t, std::uint32_t rank) {
      return rank % every == 0 ? 0.5 + 0.05 * static_cast<double>(random() % 2) : 0.0;
    });
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].cause, Cause::kJobWide) << verdicts[0].sentence;
    EXPECT_NE(verdicts[0].sentence.find("what grew is the wait for input"), std::string::npos)
        << verdicts[0].sentence;
  }
}

TEST(InputWatch, AWaitThatMakesNoStepLongerIsNoTrouble) {
  Loading job(4);
  EXPECT_TRUE(job.run(200, none).empty());
  const auto verdicts = job.run(
      200, [](std::uint64_t, std::uint32_t rank) { return rank == 2 ? 0.4 : 0.0; }, false);
  EXPECT_TRUE(verdicts.empty()) << verdicts[0].sentence;
}

TEST(InputWatch, ALateLoaderIsNoSlowDevice) {
  Loading job(4);
  EXPECT_TRUE(job.run(200, none).empty());
  const auto late = [](std::uint64_t, std::uint32_t rank) { return rank == 1 ? 0.4 : 0.0; };
  ASSERT_EQ(job.run(60, late).size(), 1U);
  EXPECT_EQ(job.watch.slowdown(RankId(1)), 1.0);
  EXPECT_FALSE(job.watch.any_blamed());
}

TEST(InputWatch, ANewSessionBringsNewLoaders) {
  Loading job(4);
  EXPECT_TRUE(job.run(200, none).empty());
  const auto late = [](std::uint64_t, std::uint32_t rank) { return rank == 1 ? 0.4 : 0.0; };
  ASSERT_EQ(job.run(60, late).size(), 1U);
  job.watch.new_session();
  EXPECT_FALSE(job.watch.any_late());
  EXPECT_TRUE(job.run(100, none).empty());
}

}  // namespace
}  // namespace tapas::daemon
