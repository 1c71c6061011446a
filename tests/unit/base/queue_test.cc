#include "base/queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace tapas {
namespace {

using std::chrono::milliseconds;

TEST(BoundedQueue, RefusesWhenFullAndLosesNothing) {
  BoundedQueue<int, WhenFull::kRefuse> queue(2);
  EXPECT_TRUE(queue.push(1));
  EXPECT_TRUE(queue.push(2));
  EXPECT_FALSE(queue.push(3));
  EXPECT_EQ(queue.pop(milliseconds(0)), 1);
  EXPECT_EQ(queue.pop(milliseconds(0)), 2);
  EXPECT_EQ(queue.pop(milliseconds(0)), std::nullopt);
  EXPECT_EQ(queue.dropped(), 0U);
}

TEST(BoundedQueue, DropsTheOldestAndCountsIt) {
  BoundedQueue<int, WhenFull::kDropOldest> queue(2);
  for (int i = 1; i <= 5; ++i) {
    EXPECT_TRUE(queue.push(i));
  }
  EXPECT_EQ(queue.dropped(), 3U);
  EXPECT_EQ(queue.pop(milliseconds(0)), 4);
  EXPECT_EQ(queue.pop(milliseconds(0)), 5);
}

TEST(BoundedQueue, DrainsAfterCloseAndTakesNoMore) {
  BoundedQueue<std::unique_ptr<int>, WhenFull::kRefuse> queue(4);
  EXPECT_TRUE(queue.push(std::make_unique<int>(7)));
  queue.close();
  EXPECT_FALSE(queue.push(std::make_unique<int>(8)));
  EXPECT_FALSE(queue.closed_and_empty());
  EXPECT_EQ(**queue.pop(milliseconds(0)), 7);
  EXPECT_TRUE(queue.closed_and_empty());
}

TEST(BoundedQueue, CarriesEverythingBetweenThreads) {
  BoundedQueue<int, WhenFull::kRefuse> queue(8);
  constexpr int kCount = 1000;
  std::thread producer([&] {
    for (int i = 0; i < kCount; ++i) {
      while (!queue.push(i)) {
        std::this_thread::yield();
      }
    }
    queue.close();
  });
  int expected = 0;
  while (!queue.closed_and_empty()) {
    if (const auto value = queue.pop(milliseconds(100))) {
      ASSERT_EQ(*value, expected++);
    }
  }
  producer.join();
  EXPECT_EQ(expected, kCount);
}

}  // namespace
}  // namespace tapas
