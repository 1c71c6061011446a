#include "agent/nccl/step_finder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace tapas::nccl {
namespace {

constexpr std::uint64_t kS = 1'000'000'000;

class Steps : public testing::Test {
 protected:
  /// One collective after another, each a millisecond later.
  std::uint64_t launch(std::uint64_t kind, std::uint64_t bytes, std::uint32_t communicator = 0) {
    now_ns += kS / 1'000;
    return finder->launch({kind * 7'919, bytes, communicator, now_ns});
  }

  std::unique_ptr<StepFinder> finder = std::make_unique<StepFinder>();
  std::uint64_t now_ns = 0;
};

TEST_F(Steps, AreNumberedFromTheStartWhoeverFoundThemWhen) {
  // Two ranks: one has collectives of its own at the start, and more in each step.
  std::vector<std::uint64_t> numbers[2];
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    finder = std::make_unique<StepFinder>();
    finder->set_settle_ns(kS / 10);
    for (std::uint64_t i = 0; i < 100 * rank; ++i) {
      launch(50 + i % 7, 10'000);
    }
    for (std::uint64_t step = 1; step <= 100; ++step) {
      for (std::uint64_t i = 0; i < 4 + 9 * rank; ++i) {
        launch(1 + rank, 10'000);
      }
      launch(3, 50'000'000);
      numbers[rank].push_back(launch(4, 400'000'000));
    }
    EXPECT_TRUE(finder->found());
    EXPECT_EQ(numbers[rank].back(), 100U);
  }
  EXPECT_NE(numbers[0], numbers[1]) << "one knew sooner";
}

TEST_F(Steps, AreNotTheMicrobatchesWithin) {
  // 48 layers times 64 microbatches of one collective, 3 s; then the gradients. Settles in 10 s.
  finder->set_settle_ns(10 * kS);
  std::uint64_t told = 0;
  for (std::uint64_t step = 1; step <= 12; ++step) {
    for (int i = 0; i < 48 * 64; ++i) {
      EXPECT_EQ(launch(1, 1'000'000), 0U);
    }
    const std::uint64_t number = launch(2, 30'000'000);
    if (number != 0) {
      EXPECT_EQ(number, step);
      ++told;
    }
  }
  EXPECT_GE(told, 6U);
}

TEST_F(Steps, MayHaveNoCollectiveThatComesOnce) {
  // Sharded parameters: every layer alike, gathered twice and scattered once, in 0.14 s.
  finder->set_settle_ns(kS);
  for (std::uint64_t step = 1; step <= 30; ++step) {
    std::vector<std::uint64_t> numbers;
    for (int i = 0; i < 96; ++i) {
      numbers.push_back(launch(1, 10'000));
    }
    for (int i = 0; i < 48; ++i) {
      numbers.push_back(launch(2, 9'000));
    }
    for (std::size_t i = 0; i < numbers.size() && step > 20; ++i) {
      EXPECT_EQ(numbers[i], i == 95 ? step : 0);
    }
  }
}

TEST_F(Steps, OutlastWhatComesInBetween) {
  for (std::uint64_t step = 1; step <= 200; ++step) {
    launch(1, 10'000);
    launch(2, 10'000);
    if (step % 50 == 0) {
      for (int i = 0; i < 30; ++i) {
        launch(3, 2'000'000);  // An evaluation.
      }
    }
    const std::uint64_t number = launch(4, 400'000);
    EXPECT_TRUE(number == step || step < 20);
  }
}

TEST_F(Steps, DoNotDependOnLossesAndNorms) {
  std::mt19937_64 random(5);
  for (std::uint64_t step = 1; step <= 100; ++step) {
    for (int i = 0; i < 3; ++i) {
      launch(1, 10'000);
      if (random() % 3 == 0) {
        EXPECT_EQ(launch(9, 4), 0U);
      }
    }
    const std::uint64_t number = launch(2, 400'000);
    EXPECT_TRUE(number == step || step < 20);
    if (step % 10 == 0) {
      EXPECT_EQ(launch(8, 8), 0U);
    }
  }
  EXPECT_TRUE(finder->found());
}

TEST_F(Steps, AreNotSeenWhereNothingRepeats) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    EXPECT_EQ(launch(random() % 100'000, 10'000), 0U);
  }
  EXPECT_FALSE(finder->found());
}

TEST_F(Steps, GoOnWhenTheirCommunicatorIsReplaced) {
  std::uint64_t last = 0;
  for (std::uint32_t communicator = 1; communicator <= 3; ++communicator) {
    for (std::uint64_t step = 1; step <= 20; ++step) {
      launch(1, 10'000, 9);
      const std::uint64_t number = launch(10 + communicator, 50'000, communicator);
      EXPECT_TRUE(number == 0 || number > last);
      last = number == 0 ? last : number;
    }
    EXPECT_EQ(last, 20U * communicator);
    finder->forget(communicator);
    finder->forget(77);
  }
}

}  // namespace
}  // namespace tapas::nccl
