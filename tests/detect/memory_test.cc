// Counts the blocks of memory that live while a job is watched for a million steps.
#include "daemon/core/watch.h"
#include "tests/detect/live_blocks.h"
#include "tests/detect/trace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tapas::daemon::testing {
namespace {

TEST(Detection, TheMemoryOfAMillionStepsIsThatOfAThousand) {
  constexpr std::uint32_t kRanks = 4;
  solver::Cluster cluster;
  cluster.device_types.emplace_back();
  cluster.node_types.emplace_back().devices = 1;
  cluster.nodes.resize(kRanks);
  const Roles roles(
      cluster,
      std::vector<Role>{{true, 0, 0, 1}, {true, 1, 0, 1}, {true, 2, 0, 1}, {true, 3, 0, 1}});
  Watch watch(kRanks);
  watch.follow(roles);
  StepWindow window(kRanks);
  window.follow(kRanks);
  Random random(1);
  long after_warm_up = 0;
  for (std::uint64_t step = 1; step <= 1'000'000; ++step) {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      StepSample sample;
      sample.rank = RankId(rank);
      sample.step = step;
      sample.end_time_s = static_cast<double>(step);
      sample.microbatches = 1;
      sample.wall_s = 1;
      sample.forward_s = 0.7 + 0.05 * random.uniform();
      static_cast<void>(window.add(sample));
    }
    while (auto whole = window.next()) {
      static_cast<void>(watch.observe(*whole));
      window.recycle(std::move(*whole));
    }
    if (step == 1000) {
      after_warm_up = live_blocks();
    }
  }
  EXPECT_LE(live_blocks(), after_warm_up + 8);
}

}  // namespace
}  // namespace tapas::daemon::testing
