#include "daemon/core/step_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

StepSample sample(std::uint32_t rank, std::uint64_t step, double wall_s = 1.0) {
  StepSample out;
  out.rank = RankId(rank);
  out.step = step;
  out.wall_s = wall_s;
  out.microbatches = 2;
  out.forward_s = 0.2;
  out.backward_s = 0.4;
  return out;
}

std::vector<std::uint64_t> drain(StepWindow& window) {
  std::vector<std::uint64_t> steps;
  while (auto whole = window.next()) {
    steps.push_back(whole->step);
    window.recycle(std::move(*whole));
  }
  return steps;
}

TEST(StepWindow, AStepIsWholeOnceAllRanksReportedIt) {
  StepWindow window(4);
  window.follow(4);
  // Nobody is known yet: half is enough, and the others are waited for from then on.
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(window.add(sample(rank, 9)),
              rank < 2 ? StepWindow::Intake::kTaken : StepWindow::Intake::kLate);
    drain(window);
  }
  EXPECT_EQ(window.live(), 4U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(drain(window).empty());
    EXPECT_EQ(window.add(sample(rank, 10)), StepWindow::Intake::kTaken);
  }
  const auto whole = window.next();
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->count, 4U);
  EXPECT_NEAR(whole->ranks[3].compute_s, 0.3, 1e-12);
  EXPECT_EQ(window.add(sample(0, 10)), StepWindow::Intake::kLate);
}

TEST(StepWindow, ALostRecordDelaysItsStepOnlyUntilTheNextIsWhole) {
  StepWindow window(4);
  window.follow(4);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      if (step != 2 || rank != 1) {
        static_cast<void>(window.add(sample(rank, step)));
      }
    }
  }
  EXPECT_EQ(drain(window), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(StepWindow, ARankThatFallsSilentIsNotWaitedForForever) {
  StepWindow window(4);
  window.follow(4);
  std::vector<std::uint64_t> seen;
  for (std::uint64_t step = 1; step <= 60; ++step) {
    for (std::uint32_t rank = 0; rank < (step < 20 ? 4U : 3U); ++rank) {
      static_cast<void>(window.add(sample(rank, step)));
    }
    for (const std::uint64_t whole : drain(window)) {
      seen.push_back(whole);
    }
  }
  EXPECT_EQ(seen.back(), 60U);
  EXPECT_GE(seen.size(), 58U);
}

TEST(StepWindow, OneRankFarAheadIsRefusedButFollowedWhenMostAre) {
  StepWindow window(4);
  window.follow(4);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    static_cast<void>(window.add(sample(rank, 1)));
  }
  static_cast<void>(drain(window));
  EXPECT_EQ(window.add(sample(0, 1'000'000)), StepWindow::Intake::kAhead);
  EXPECT_EQ(window.newest(), 1U);
  for (std::uint64_t step = 2; step < 5; ++step) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      static_cast<void>(window.add(sample(rank, step)));
    }
  }
  EXPECT_EQ(drain(window), (std::vector<std::uint64_t>{2, 3, 4}));

  // The records of a while were lost for all: the window follows.
  for (std::uint64_t step = 500; step < 504; ++step) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      static_cast<void>(window.add(sample(rank, step)));
    }
  }
  const auto steps = drain(window);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), 503U);
}

TEST(StepWindow, IsSoonInStepAgainAfterAStallThatTheNodesCatchUpEachInItsTime) {
  // The daemon stood still for 40 steps. Each rank then sends what was kept, the oldest gone, some
  // sooner than others; after that all are in step, in another order at each.
  constexpr std::uint32_t kRanks = 64;
  StepWindow window(kRanks);
  window.follow(kRanks);
  std::size_t whole = 0;
  const auto add = [&](std::uint32_t rank, std::uint64_t step) {
    static_cast<void>(window.add(sample(rank, step)));
    whole += drain(window).size();
  };
  std::vector<std::uint32_t> order(kRanks);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 random(1);
  std::vector<std::uint64_t> sent(kRanks, 0);
  for (std::uint64_t step = 1; step <= 440; ++step) {
    if (step == 5) {
      whole = 0;
      step = 45;
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        sent[rank] = 20 + rank % 16;
      }
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::uint32_t rank : order) {
      for (int i = 0; i < 2 && sent[rank] < step; ++i) {
        add(rank, ++sent[rank]);
      }
    }
  }
  EXPECT_GE(whole, 370U);
}

TEST(StepWindow, ARestartForgetsTheStepCounter) {
  StepWindow window(2);
  window.follow(2);
  static_cast<void>(window.add(sample(0, 5000)));
  static_cast<void>(window.add(sample(1, 5000)));
  static_cast<void>(drain(window));
  window.restart();
  static_cast<void>(window.add(sample(0, 1)));
  static_cast<void>(window.add(sample(1, 1)));
  EXPECT_EQ(drain(window), (std::vector<std::uint64_t>{1}));
}

TEST(StepWindow, ARepeatedRecordCountsOnce) {
  StepWindow window(4);
  window.follow(4);
  static_cast<void>(window.add(sample(0, 3)));
  EXPECT_EQ(window.add(sample(0, 3)), StepWindow::Intake::kDuplicate);
  EXPECT_TRUE(drain(window).empty());
}

}  // namespace
}  // namespace tapas::daemon
