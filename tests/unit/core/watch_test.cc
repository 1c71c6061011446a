#include "daemon/core/watch.h"

#include "daemon/core/attribution.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tapas::daemon {
namespace {

/// Feeds whole steps; every rank ends its step when the slowest does, as in a real job.
class Feed {
 public:
  Feed(std::uint32_t replicas, double jitter, std::uint64_t seed = 1, std::uint16_t devices = 2)
      : job(solver::testing::small_job(6, replicas * 2, devices, replicas * 4)),
        plan(solver::testing::simple_plan(job, {0, 4}, replicas, devices)),
        roles(job, plan),
        watch(job.cluster.device_count()),
        slowdown(job.cluster.device_count(), 1.0),
        jitter_(jitter),
        random_(seed) {
    watch.follow(roles);
  }
  void step() {
    std::normal_distribution<double> noise(1.0, jitter_);
    WholeStep whole;
    whole.step = ++steps;
    whole.flags = flags;
    whole.ranks.resize(slowdown.size());
    double slowest = 0;
    const double shared = std::exp(shared_noise * (noise(random_) - 1.0) / std::max(jitter_, 1e-9));
    for (std::uint32_t r = 0; r < slowdown.size(); ++r) {
      RankStep& rank = whole.ranks[r];
      rank.seen = true;
      const double compute =
          roles.of(RankId(r)).compute_s * slowdown[r] * shared * std::max(0.1, noise(random_));
      rank.compute_s = reports_compute ? compute : 0;
      slowest = std::max(slowest, compute);
      ++whole.count;
    }
    time_s += slowest * 10 * wall_ratio;
    for (RankStep& rank : whole.ranks) {
      rank.wall_s = slowest * 10 * wall_ratio;
      rank.end_s = time_s;
    }
    whole.ranks[0].end_s += clock_skew_s;
    static_cast<void>(watch.observe(whole));
  }
  /// Steps until a verdict is due; `most` + 1 when none is.
  int steps_to_verdict(int most) {
    for (int i = 1; i <= most; ++i) {
      step();
      if (watch.verdict_due()) {
        return i;
      }
    }
    return most + 1;
  }
  void slow_node(std::uint32_t node, double factor) {
    for (std::uint32_t d = 0; d < 2; ++d) {
      slowdown[job.cluster.rank_of(NodeId(node), d).value()] = factor;
    }
  }
  Verdict verdict() { return attribute(watch.findings(), roles, job.cluster); }
  /// The first verdict that holds, if it comes within so many steps; `before` each of them.
  template <typename Before>
  Verdict verdict_within(int most, Before before) {
    for (int i = 1; i <= most; ++i) {
      before(i);
      step();
      if (watch.verdict_due()) {
        Verdict found = verdict();
        if (found.cause != Cause::kNothing) {
          return found;
        }
      }
    }
    return {};
  }

  solver::Job job;
  solver::Plan plan;
  Roles roles;
  Watch watch;
  std::vector<double> slowdown;
  std::uint32_t flags = 0;
  double wall_ratio = 1;
  double shared_noise = 0;
  double clock_skew_s = 0;
  bool reports_compute = true;
  std::uint64_t steps = 0;
  double time_s = 1.7e9;

 private:
  double jitter_;
  std::mt19937_64 random_;
};

TEST(Watch, ASlowNodeGetsItsVerdictWithinFiveSteps) {
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    for (const double factor : {1.2, 1.6, 3.0}) {
      Feed feed(replicas, 0.01);
      EXPECT_EQ(feed.steps_to_verdict(60), 61);
      feed.slow_node(1, factor);
      EXPECT_LE(feed.steps_to_verdict(20), 5) << replicas << " replicas, factor " << factor;
      const Verdict verdict = feed.verdict();
      ASSERT_EQ(verdict.cause, Cause::kHost) << verdict.sentence;
      EXPECT_EQ(verdict.culprits[0].node, feed.job.cluster.nodes[1].name);
      EXPECT_EQ(verdict.culprits.size(), 1U);
      EXPECT_NEAR(verdict.slowdown, factor, 0.06 * factor);
      EXPECT_EQ(verdict.since.step, 61U);
    }
  }
}

TEST(Watch, ASlowNodeIsNoPaceToLearn) {
  for (const std::uint32_t replicas : {2U, 4U}) {
    for (const int healthy : {0, 3}) {
      Feed feed(replicas, 0.01);
      for (int i = 0; i < healthy; ++i) {
        feed.step();
      }
      feed.slow_node(1, 1.6);
      ASSERT_LE(feed.steps_to_verdict(30), 16) << replicas << " replicas, " << healthy;
      const Verdict verdict = feed.verdict();
      ASSERT_EQ(verdict.cause, Cause::kHost) << verdict.sentence;
      EXPECT_EQ(verdict.culprits.size(), 1U) << verdict.sentence;
      EXPECT_EQ(verdict.culprits[0].node, feed.job.cluster.nodes[1].name);
      EXPECT_NEAR(verdict.slowdown, 1.6, 0.1);
    }
  }
}

TEST(Watch, OneSlowDeviceIsTheDevice) {
  Feed feed(4, 0.01);
  EXPECT_EQ(feed.steps_to_verdict(60), 61);
  feed.slowdown[5] = 1.5;
  EXPECT_LE(feed.steps_to_verdict(20), 5);
  const Verdict verdict = feed.verdict();
  EXPECT_EQ(verdict.cause, Cause::kDevice);
  EXPECT_EQ(verdict.culprits[0].ranks, (std::vector<RankId>{RankId(5)}));
}

TEST(Watch, PackedBatchesBlameNobodyYetASlowRankIsFound) {
  Feed feed(8, 0.115);
  feed.shared_noise = 0.148;
  int verdicts = 0;
  for (int i = 0; i < 5000; ++i) {
    feed.step();
    if (feed.watch.verdict_due()) {
      const Verdict verdict = feed.verdict();
      ++verdicts;
      EXPECT_TRUE(verdict.culprits.empty()) << verdict.sentence;
      feed.watch.accept(verdict.stages);
    }
  }
  EXPECT_LE(verdicts, 1);
  feed.slowdown[9] = 1.25;
  EXPECT_LE(feed.steps_to_verdict(300), 300);
  const Verdict verdict = feed.verdict();
  ASSERT_EQ(verdict.culprits.size(), 1U) << verdict.sentence;
  EXPECT_EQ(verdict.culprits[0].ranks, (std::vector<RankId>{RankId(9)}));
}

TEST(Watch, FlaggedStepsAreNeitherLearntNorJudged) {
  Feed feed(4, 0.01);
  feed.flags = 1;
  feed.slow_node(0, 50);
  for (int i = 0; i < 10; ++i) {
    feed.step();
  }
  EXPECT_TRUE(feed.watch.learning());
  feed.flags = 0;
  feed.slow_node(0, 1);
  EXPECT_EQ(feed.steps_to_verdict(60), 61);
}

TEST(Watch, ASlowerStepWithEqualComputeIsJobWide) {
  Feed feed(4, 0.01);
  EXPECT_EQ(feed.steps_to_verdict(150), 151);
  feed.wall_ratio = 1.5;
  EXPECT_LE(feed.steps_to_verdict(40), 20);
  EXPECT_EQ(feed.verdict().cause, Cause::kJobWide);
}

TEST(Watch, WithoutComputeTimesTheCulpritIsUnknown) {
  Feed feed(4, 0.01);
  feed.reports_compute = false;
  EXPECT_EQ(feed.steps_to_verdict(150), 151);
  feed.slow_node(3, 2.0);
  EXPECT_LE(feed.steps_to_verdict(40), 20);
  EXPECT_EQ(feed.verdict().cause, Cause::kUnknown);
}

TEST(Watch, AStageThatGrowsInAllReplicasIsHeavy) {
  for (const std::uint32_t replicas : {2U, 4U}) {
    Feed feed(replicas, 0.01);
    EXPECT_EQ(feed.steps_to_verdict(60), 61);
    for (const RankId rank : feed.roles.by_stage()[1]) {
      feed.slowdown[rank.value()] = 1.4;
    }
    EXPECT_LE(feed.steps_to_verdict(40), 20);
    const Verdict verdict = feed.verdict();
    EXPECT_EQ(verdict.cause, Cause::kHeavyStage) << verdict.sentence;
    EXPECT_EQ(verdict.stages, (std::vector<std::uint32_t>{1}));
  }
}

TEST(Watch, ABlamedNodeRecoversAndTheStateForgetsIt) {
  Feed feed(4, 0.01);
  EXPECT_EQ(feed.steps_to_verdict(60), 61);
  feed.slow_node(2, 1.6);
  EXPECT_LE(feed.steps_to_verdict(20), 5);
  const Verdict verdict = feed.verdict();
  ASSERT_EQ(verdict.culprits.size(), 1U);
  for (const RankId rank : verdict.culprits[0].ranks) {
    feed.watch.blame(rank, 1.6);
  }
  EXPECT_TRUE(feed.watch.any_blamed());
  EXPECT_NEAR(feed.watch.slowdowns()[4], 1.6, 1e-9);
  EXPECT_EQ(feed.watch.slowdowns()[0], 1.0);
  feed.slow_node(2, 1.0);
  std::vector<RankId> back;
  for (int i = 0; i < 10 && back.empty(); ++i) {
    feed.step();
    back = feed.watch.take_recovered();
  }
  EXPECT_EQ(back, (std::vector<RankId>{RankId(4), RankId(5)}));
  EXPECT_FALSE(feed.watch.any_blamed());
}

TEST(Watch, WhoIsNotSlowBeyondTheNoiseCountsAsHealthyExactly) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Feed feed(4, seed % 2 == 0 ? 0.01 : 0.05, seed, 4);
    EXPECT_EQ(feed.steps_to_verdict(60), 61);
    const RankId healthy = feed.job.cluster.rank_of(NodeId(2), 3);
    for (std::uint32_t d = 0; d < 3; ++d) {
      feed.slowdown[feed.job.cluster.rank_of(NodeId(2), d).value()] = 1.6;
    }
    ASSERT_LE(feed.steps_to_verdict(20), 9) << "seed " << seed;
    const Verdict verdict = feed.verdict();
    ASSERT_EQ(verdict.cause, Cause::kHost) << verdict.sentence;
    for (const RankId rank : verdict.culprits[0].ranks) {
      feed.watch.blame(rank, verdict.slowdown);
    }
    for (std::uint32_t r = 0; r < feed.slowdown.size(); ++r) {
      const bool slow = feed.slowdown[r] > 1;
      EXPECT_EQ(feed.watch.slowdowns()[r] > 1, slow) << "seed " << seed << " rank " << r;
    }
    EXPECT_EQ(feed.watch.slowdowns()[healthy.value()], 1.0);
  }
}

TEST(Watch, AWrongClockOfOneRankChangesNothing) {
  Feed feed(4, 0.01);
  EXPECT_EQ(feed.steps_to_verdict(40), 41);
  feed.clock_skew_s = 60;
  EXPECT_EQ(feed.steps_to_verdict(40), 41);
  feed.clock_skew_s = -90;
  EXPECT_EQ(feed.steps_to_verdict(40), 41);
}

TEST(Watch, BlameStaysWithTheDeviceAcrossASession) {
  Feed feed(4, 0.01);
  EXPECT_EQ(feed.steps_to_verdict(60), 61);
  feed.slow_node(2, 1.6);
  EXPECT_LE(feed.steps_to_verdict(20), 5);
  const Verdict verdict = feed.verdict();
  ASSERT_EQ(verdict.culprits.size(), 1U);
  for (const RankId rank : verdict.culprits[0].ranks) {
    feed.watch.blame(rank, 1.6);
  }
  feed.watch.new_session();
  EXPECT_EQ(feed.steps_to_verdict(40), 41);
  EXPECT_TRUE(feed.watch.any_blamed());
}

TEST(Watch, YoungJobsOfManyNoisyRanksNameNobody) {
  for (const double jitter : {0.05, 0.1}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      Feed feed(64, jitter, seed, 8);
      EXPECT_EQ(feed.steps_to_verdict(60), 61) << jitter << ": " << feed.verdict().sentence;
    }
  }
}

TEST(Watch, PlainJitterIsNoUnevenData) {
  Feed feed(16, 0.15, 3);
  EXPECT_EQ(feed.steps_to_verdict(1000), 1001) << feed.verdict().sentence;
}

TEST(Watch, UnevenSequencesAreData) {
  Feed feed(8, 0.01, 5, 4);
  std::mt19937_64 random(1);
  std::normal_distribution<double> length(0, 0.2);
  const Verdict verdict = feed.verdict_within(200, [&](int) {
    for (const std::vector<RankId>& replica : feed.roles.by_replica()) {
      const double factor = std::exp(length(random));
      for (const RankId rank : replica) {
        feed.slowdown[rank.value()] = factor;
      }
    }
  });
  EXPECT_EQ(verdict.cause, Cause::kData) << verdict.sentence;
  EXPECT_TRUE(verdict.culprits.empty());
}

TEST(Watch, OfTwoReplicasTheOneWithTheLongBatchesIsNotSlow) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Feed feed(2, 0.01, seed, 4);
    EXPECT_EQ(feed.steps_to_verdict(60), 61);
    std::mt19937_64 random(seed);
    std::normal_distribution<double> length(0, 0.4);
    // By chance the first has long batches for some steps.
    const Verdict verdict = feed.verdict_within(200, [&](int step) {
      for (const std::vector<RankId>& replica : feed.roles.by_replica()) {
        const double factor = std::exp(length(random));
        const bool first = &replica == &feed.roles.by_replica().front();
        for (const RankId rank : replica) {
          feed.slowdown[rank.value()] = step > 6 ? factor : first ? 1.5 : 1;
        }
      }
    });
    EXPECT_TRUE(verdict.culprits.empty()) << seed << ": " << verdict.sentence;
  }
}

TEST(Watch, AReplicaThatStaysSlowIsTold) {
  Feed feed(4, 0.01);
  EXPECT_EQ(feed.steps_to_verdict(60), 61);
  for (const RankId rank : feed.roles.by_replica()[1]) {
    feed.slowdown[rank.value()] = 1.3;
  }
  const Verdict verdict = feed.verdict_within(60, [](int) {});
  EXPECT_EQ(verdict.culprits.size(), 2U) << verdict.sentence;
  EXPECT_GT(verdict.steps, 30U);
  EXPECT_NEAR(verdict.slowdown, 1.3, 0.03);
}

TEST(Watch, ARankThatIsSlowInAQuarterOfItsStepsFlapsUntilItStops) {
  Feed feed(8, 0.02);
  EXPECT_EQ(feed.steps_to_verdict(60), 61);
  const Verdict verdict =
      feed.verdict_within(60, [&](int step) { feed.slowdown[5] = step % 4 == 0 ? 1.6 : 1.0; });
  ASSERT_EQ(verdict.cause, Cause::kDevice) << verdict.sentence;
  EXPECT_EQ(verdict.culprits[0].ranks, (std::vector<RankId>{RankId(5)}));
  EXPECT_NE(verdict.sentence.find("flaps"), std::string::npos) << verdict.sentence;
  EXPECT_NEAR(verdict.slowdown, 1.15, 0.06);
  take_note(feed.watch, verdict);
  EXPECT_TRUE(feed.watch.any_blamed());
  for (int i = 0; i < 100; ++i) {
    feed.slowdown[5] = i % 4 == 0 ? 1.6 : 1.0;
    feed.step();
    ASSERT_TRUE(feed.watch.take_recovered().empty()) << "step " << i;
  }
  feed.slowdown[5] = 1;
  std::vector<RankId> back;
  for (int i = 0; i < 60 && back.empty(); ++i) {
    feed.step();
    back = feed.watch.take_recovered();
  }
  EXPECT_EQ(back, (std::vector<RankId>{RankId(5)}));
}

TEST(Watch, ANodesOtherDevicesJoinThoughEachIsStillInTheNoise) {
  int whole = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Feed feed(8, 0.05, seed, 8);
    EXPECT_EQ(feed.steps_to_verdict(200), 201);
    for (std::uint32_t device = 0; device < 8; ++device) {
      feed.slowdown[feed.job.cluster.rank_of(NodeId(3), device).value()] = 1.1;
    }
    const Verdict verdict = feed.verdict_within(100, [](int) {});
    ASSERT_EQ(verdict.culprits.size(), 1U) << "seed " << seed << " " << verdict.sentence;
    EXPECT_EQ(verdict.culprits[0].node, feed.job.cluster.nodes[3].name);
    whole += verdict.cause == Cause::kHost ? 1 : 0;
  }
  EXPECT_GE(whole, 14);
}

}  // namespace
}  // namespace tapas::daemon
