#include "daemon/core/work_hints.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

constexpr std::uint32_t kRanks = 16;

struct Job {
  Job() {
    cluster.device_types.emplace_back();
    cluster.node_types.emplace_back().devices = 1;
    std::vector<Role> all;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      cluster.nodes.emplace_back().name = "n" + std::to_string(rank);
      all.push_back({true, rank, 0, 1.0});
    }
    roles = Roles(cluster, all);
  }
  /// Standard deviation over the ranks of what is left of their compute after `steps` steps, when
  /// compute is tokens to the `power` times noise. `told`: the tokens are, else others.
  double left_after(int steps, double power, double noise, bool told = true) {
    double spread = 0;
    for (int step = 1; step <= steps; ++step) {
      WholeStep whole;
      whole.ranks.resize(kRanks);
      std::vector<double> compute(kRanks);
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        const double tokens = std::exp(0.15 * normal(random));
        whole.ranks[rank].tokens = 4096 * (told ? tokens : std::exp(0.15 * normal(random)));
        compute[rank] = power * std::log(tokens) + noise * normal(random);
      }
      hints.take_out(whole, roles, compute, {static_cast<std::uint64_t>(step), 0});
      double sum = 0;
      double squares = 0;
      for (const double value : compute) {
        sum += value;
        squares += value * value;
      }
      spread = std::sqrt(squares / kRanks - sum / kRanks * sum / kRanks);
    }
    return spread;
  }

  solver::Cluster cluster;
  Roles roles;
  WorkHints hints{kRanks};
  std::mt19937_64 random{11};
  std::normal_distribution<double> normal{0, 1};
};

TEST(WorkHints, LearnHowComputeFollowsTokens) {
  for (const double power : {0.6, 1.0, 1.4}) {
    Job job;
    EXPECT_LT(job.left_after(40, power, 0.01), 0.02) << power;
    EXPECT_NEAR(job.hints.power(), power, 0.03);
  }
}

TEST(WorkHints, ThatExplainNothingChangeNothing) {
  Job job;
  EXPECT_NEAR(job.left_after(200, 1.0, 0.01, false), 0.15, 0.08);
  EXPECT_LT(job.hints.power(), 0.1);
}

TEST(WorkHints, SayHowMuchLongerTheLargestBatchIs) {
  Job job;
  job.left_after(60, 1.0, 0.01);
  EXPECT_NEAR(job.hints.step_ratio(), 1.0, 0.1);
  for (int step = 61; step <= 80; ++step) {
    WholeStep whole;
    whole.ranks.resize(kRanks);
    std::vector<double> compute(kRanks, 0.0);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      whole.ranks[rank].tokens = rank == static_cast<std::uint32_t>(step) % kRanks ? 8192 : 4096;
      compute[rank] = std::log(whole.ranks[rank].tokens / 4096);
    }
    job.hints.take_out(whole, job.roles, compute, {static_cast<std::uint64_t>(step), 0});
  }
  // Of sixteen batches the largest was 1.3 times the usual one before.
  EXPECT_NEAR(job.hints.step_ratio(), 2.0 / 1.3, 0.15);
}

TEST(WorkHints, OfSomeRanksOnlyAreNotUsed) {
  Job job;
  job.left_after(40, 1.0, 0.01);
  WholeStep whole;
  whole.ranks.resize(kRanks);
  std::vector<double> compute(kRanks, 0.25);
  for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
    whole.ranks[rank].tokens = 9000;
  }
  job.hints.take_out(whole, job.roles, compute, {41, 0});
  EXPECT_EQ(compute, std::vector<double>(kRanks, 0.25));
}

}  // namespace
}  // namespace tapas::daemon
