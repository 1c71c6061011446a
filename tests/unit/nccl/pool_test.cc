#include "agent/nccl/pool.h"

#include "agent/nccl/event_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace tapas::nccl {
namespace {

TEST(Pool, KnowsWhoIsGone) {
  Pool<std::atomic<int>, 4> pool;
  const auto first = pool.take(1);
  ASSERT_NE(first.item, nullptr);
  EXPECT_EQ(pool.find(first.index, first.generation), first.item);
  EXPECT_TRUE(pool.give_back(first.index, first.generation));
  EXPECT_FALSE(pool.give_back(first.index, first.generation));
  EXPECT_EQ(pool.find(first.index, first.generation), nullptr);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NE(pool.take(1).item, nullptr);
  }
  EXPECT_EQ(pool.take(1).item, nullptr);
  EXPECT_EQ(pool.find(first.index, first.generation), nullptr) << "somebody else is there now";
  EXPECT_EQ(pool.find(1'000, 1), nullptr);
}

TEST(Pool, TakesOverWhatWasNeverGivenBack) {
  Pool<std::atomic<int>, 4> pool;
  for (int i = 0; i < 4; ++i) {
    EXPECT_NE(pool.take(5).item, nullptr);
  }
  EXPECT_EQ(pool.take(4 + Pool<std::atomic<int>, 4>::kStaleNs).item, nullptr);
  EXPECT_NE(pool.take(5 + Pool<std::atomic<int>, 4>::kStaleNs).item, nullptr);
}

TEST(Pool, GivesAPlaceToOneThreadOnly) {
  const auto pool = std::make_unique<Pool<std::atomic<int>, 64>>();
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> taken{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20'000; ++round) {
        const auto place = pool->take(1);
        if (place.item == nullptr) {
          continue;
        }
        ++taken;
        EXPECT_EQ(place.item->fetch_add(1), 0);
        EXPECT_EQ(place.item->fetch_sub(1), 1);
        EXPECT_TRUE(pool->give_back(place.index, place.generation));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(taken.load(), 20'000U);
}

TEST(EventQueue, HandsEveryEventOverOnceAndRefusesWhenFull) {
  const auto queue = std::make_unique<EventQueue<std::uint64_t, 64>>();
  for (std::uint64_t i = 0; i < 48; ++i) {
    EXPECT_TRUE(queue->push(i, 16));
  }
  EXPECT_FALSE(queue->push(48, 16));
  for (std::uint64_t i = 48; i < 64; ++i) {
    EXPECT_TRUE(queue->push(i));
  }
  EXPECT_FALSE(queue->push(64));
  std::uint64_t event = 0;
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(queue->pop(event));
    EXPECT_EQ(event, i);
  }
  EXPECT_FALSE(queue->pop(event));

  constexpr std::uint64_t kEach = 20'000;
  constexpr std::uint64_t kWriters = 3;
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        while (!queue->push(writer * kEach + i)) {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<std::uint64_t> next(kWriters, 0);
  for (std::uint64_t got = 0; got < kWriters * kEach;) {
    if (!queue->pop(event)) {
      std::this_thread::yield();
      continue;
    }
    ++got;
    EXPECT_EQ(event % kEach, next[event / kEach]++) << "in the order of its writer";
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
}

}  // namespace
}  // namespace tapas::nccl
