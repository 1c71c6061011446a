#include "daemon/core/device_memory.h"

#include "daemon/core/decision.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

/// Two nodes of two devices: slots 0 to 3.
class Slots {
 public:
  const solver::Job job = solver::testing::small_job(6, 2, 2, 16);
  const CoreConfig config;
  DeviceMemory memory{"small", job.cluster};

  void episode(std::uint32_t slot, double since_s, double until_s) {
    memory.slow(config, RankId(slot), 1.5, since_s);
    memory.well(RankId(slot), until_s);
  }
  std::uint32_t episodes(std::uint32_t slot) const {
    const DeviceRow* row = memory.find(RankId(slot));
    return row == nullptr ? 0 : row->episodes;
  }
};

TEST(DeviceMemory, CountsEpisodesInARowAndForgetsOldOnes) {
  Slots slots;
  slots.episode(1, 1000, 1100);
  EXPECT_EQ(slots.episodes(1), 1U);
  slots.episode(1, 2000, 2200);
  EXPECT_EQ(slots.episodes(1), 2U);
  EXPECT_EQ(slots.memory.find(RankId(1))->slow_s, 300);
  slots.memory.slow(slots.config, RankId(1), 1.7, 2300);
  slots.memory.slow(slots.config, RankId(1), 1.9, 2400);  // its level moves
  EXPECT_EQ(slots.episodes(1), 3U);
  EXPECT_EQ(slots.memory.find(RankId(1))->since_s, 2300);
  slots.memory.well(RankId(1), 2500);
  slots.episode(1, 2500 + 3601, 7000);
  EXPECT_EQ(slots.episodes(1), 1U);
  EXPECT_EQ(slots.memory.find(RankId(1))->slow_s, 7000 - 6101);
  EXPECT_EQ(slots.episodes(0), 0U);
}

TEST(DeviceMemory, ALongQuarantineIsRememberedForAsLong) {
  Slots slots;
  for (int i = 0; i < 4; ++i) {
    slots.episode(2, 1000 + 200 * i, 1100 + 200 * i);
  }
  const double rests_s = flap_quarantine_s(slots.config, 4);
  EXPECT_EQ(rests_s, 600 * 16);
  slots.episode(2, 1700 + rests_s - 10, 1700 + rests_s);
  EXPECT_EQ(slots.episodes(2), 5U);
}

TEST(DeviceMemory, ADeviceTakesItsHistoryAlong) {
  Slots slots;
  EXPECT_FALSE(slots.memory.seat(RankId(0), "A"));
  EXPECT_FALSE(slots.memory.seat(RankId(1), "B"));
  slots.episode(0, 10, 20);
  EXPECT_FALSE(slots.memory.seat(RankId(0), ""));  // an agent that does not know
  EXPECT_FALSE(slots.memory.seat(RankId(0), "A"));
  static_cast<void>(slots.memory.take_changes());
  // They change places, one report after the other.
  EXPECT_TRUE(slots.memory.seat(RankId(0), "B"));
  EXPECT_EQ(slots.episodes(0), 0U);
  EXPECT_TRUE(slots.memory.seat(RankId(1), "A"));
  EXPECT_EQ(slots.episodes(1), 1U);
  const auto changes = slots.memory.take_changes();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].device, "A");
  EXPECT_EQ(changes[0].index, 1U);
  // To another node.
  EXPECT_TRUE(slots.memory.seat(RankId(3), "A"));
  EXPECT_EQ(slots.memory.find(RankId(3))->node, slots.job.cluster.nodes[1].name);
}

TEST(DeviceMemory, AHistoryWithoutANameGetsItLater) {
  Slots slots;
  slots.episode(2, 10, 20);
  EXPECT_FALSE(slots.memory.seat(RankId(2), "C"));
  EXPECT_EQ(slots.episodes(2), 1U);
  // What is stored by then brings it back under its name, and nothing under the stand-in.
  DeviceMemory restored("small", slots.job.cluster);
  for (const DeviceRow& row : slots.memory.take_changes()) {
    restored.restore(row);
  }
  EXPECT_EQ(restored.device(RankId(2)), "C");
  ASSERT_NE(restored.find(RankId(2)), nullptr);
  EXPECT_EQ(restored.find(RankId(2))->until_s, 20);
  EXPECT_TRUE(restored.seat(RankId(2), "D"));
  EXPECT_EQ(restored.find(RankId(2)), nullptr);
}

TEST(DeviceMemory, KnowsWhatTheRunningPlanWasMadeFor) {
  Slots slots;
  slots.memory.slow(slots.config, RankId(0), 1.5, 10);
  slots.episode(1, 10, 20);
  slots.memory.planned(true);
  EXPECT_EQ(slots.memory.find(RankId(0))->planned_at, 1.5);
  EXPECT_EQ(slots.memory.find(RankId(1))->planned_at, 0);
  slots.memory.planned(false);  // taken back
  EXPECT_EQ(slots.memory.find(RankId(0))->planned_at, 0);
  slots.memory.planned(true);
  slots.memory.well(RankId(0), 30);
  EXPECT_EQ(slots.memory.find(RankId(0))->planned_at, 1.5);  // until a plan for its being well
  slots.memory.forget_plan(RankId(0));
  EXPECT_EQ(slots.memory.find(RankId(0))->planned_at, 0);
}

}  // namespace
}  // namespace tapas::daemon
