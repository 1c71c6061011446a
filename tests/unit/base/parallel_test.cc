#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tapas {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const std::size_t count : {0U, 1U, 2U, 1000U}) {
    std::vector<std::atomic<int>> calls(count);
    parallel_for(count, [&](std::size_t k) { ++calls[k]; });
    for (const auto& called : calls) {
      EXPECT_EQ(called, 1);
    }
  }
}

}  // namespace
}  // namespace tapas
