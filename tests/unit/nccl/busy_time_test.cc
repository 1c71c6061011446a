#include "agent/nccl/busy_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace tapas::nccl {
namespace {

TEST(BusyTime, IsThatOfEachMomentCountedOnce) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    BusyTime busy;
    std::vector<bool> moments(4'000, false);
    std::uint64_t counted = 0;
    for (std::uint64_t step = 0; step < 4; ++step) {
      const std::uint64_t from = 1'000 * step;
      for (std::uint64_t i = random() % 40; i > 0; --i) {
        // Some reach into the step before, some into the next.
        const std::uint64_t begin = from + random() % 900;
        const std::uint64_t end = std::min<std::uint64_t>(begin + random() % 200, 3'999);
        busy.add(begin, end);
        std::fill(moments.begin() + static_cast<std::ptrdiff_t>(begin),
                  moments.begin() + static_cast<std::ptrdiff_t>(std::max(begin, end)), true);
      }
      const auto all = static_cast<std::uint64_t>(std::count(
          moments.begin(), moments.begin() + static_cast<std::ptrdiff_t>(from) + 1'000, true));
      ASSERT_EQ(busy.close(from + 1'000), all - counted);
      counted = all;
    }
  }
}

TEST(BusyTime, SettlesTheOldestWhenThereAreMany) {
  BusyTime busy;
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    busy.add(10 * i, 10 * i + 3);
  }
  busy.add(0, 5);  // Long settled.
  EXPECT_EQ(busy.close(10'000), 3'000U);
  EXPECT_EQ(busy.close(20'000), 0U);
}

}  // namespace
}  // namespace tapas::nccl
