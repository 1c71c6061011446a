// Counts the blocks of memory that live while a job is watched for a million steps, and while all
// agents come back again and again.
#include "daemon/core/core.h"
#include "daemon/core/watch.h"
#include "tests/detect/live_blocks.h"
#include "tests/detect/trace.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
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

TEST(Reconnects, OfAllAgentsAHundredTimesLeaveNoMemoryBehind) {
  constexpr std::uint32_t kNodes = 128;
  const auto job =
      std::make_shared<const solver::Job>(solver::testing::small_job(6, kNodes, 2, 2 * kNodes));
  Restored restored;
  restored.term = Term(1);
  auto plan = solver::testing::simple_plan(*job, {0, 4}, kNodes / 2, 2);
  plan.epoch = Epoch(1);
  restored.jobs[job->name].active = std::make_shared<const solver::Plan>(plan);
  Core core({}, {job}, restored);
  Now now;
  long before = 0;
  for (std::uint64_t again = 1; again <= 100; ++again) {
    for (std::uint32_t n = 0; n < kNodes; ++n) {
      const std::string& node = job->cluster.nodes[n].name;
      JobAttachment attachment{job->name, 7, Epoch(1), {}, {}};
      for (std::uint32_t device = 0; device < 2; ++device) {
        attachment.ranks.push_back({job->cluster.rank_of(NodeId(n), device), "", 1});
      }
      static_cast<void>(core.apply(AgentHello{node, again, Term(1), {attachment}}, now));
      static_cast<void>(core.apply(AgentHeartbeat{node, 10 * again, 10'000 * again}, now));
      now.steady += std::chrono::milliseconds(4);
    }
    static_cast<void>(core.apply(Tick{}, now));
    if (again == 3) {
      before = live_blocks();
      ASSERT_GT(before, 0);
    }
  }
  EXPECT_LE(live_blocks(), before + before / 5);
  // Silence of a minute, then all are known again at once.
  now.steady += std::chrono::minutes(1);
  static_cast<void>(core.apply(Tick{}, now));
  for (const AgentView& agent : core.status(now).agents) {
    EXPECT_FALSE(agent.connected);
  }
  for (const solver::Node& node : job->cluster.nodes) {
    static_cast<void>(core.apply(AgentHello{node.name, 101, Term(1), {}}, now));
  }
  for (const AgentView& agent : core.status(now).agents) {
    EXPECT_TRUE(agent.connected);
  }
  EXPECT_LE(live_blocks(), before + before / 5);
}

}  // namespace
}  // namespace tapas::daemon::testing
