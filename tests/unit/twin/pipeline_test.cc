#include "agent/twin/pipeline.h"

#include "tests/unit/twin/naive_pipeline.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace tapas::twin {
namespace {

TEST(Pipeline, AgreesWithTheNaiveSimulation) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> compute(0.5, 3.0);
  std::uniform_real_distribution<double> send(0.0, 1.0);
  for (int round = 0; round < 200; ++round) {
    std::vector<StageTimes> stages(1 + random() % 6);
    for (StageTimes& stage : stages) {
      stage = {compute(random), compute(random), send(random), send(random),
               round % 3 == 0 ? 5 * send(random) : 0};
    }
    stages.back().send_forward_s = 0;
    stages.front().send_backward_s = 0;
    const auto microbatches = static_cast<std::uint32_t>(1 + random() % 9);
    for (const auto schedule : {solver::Schedule::k1f1b, solver::Schedule::kGpipe}) {
      const auto fast = run_pipeline(schedule, stages, microbatches);
      const auto slow = naive_pipeline(schedule, stages, static_cast<int>(microbatches));
      ASSERT_EQ(fast.size(), slow.size());
      for (std::size_t s = 0; s < fast.size(); ++s) {
        EXPECT_NEAR(fast[s], slow[s], 1e-9) << "round " << round << " stage " << s;
      }
    }
  }
}

TEST(Pipeline, OfEqualStagesTakesTheClosedForm) {
  const std::vector<StageTimes> stages(8, StageTimes{1.0, 2.0, 0.0, 0.0});
  for (const std::uint32_t microbatches : {1U, 5U, 8U, 40U}) {
    const auto finish = run_pipeline(solver::Schedule::k1f1b, stages, microbatches);
    EXPECT_NEAR(finish[0], 3.0 * (microbatches + 8 - 1), 1e-9);
  }
}

}  // namespace
}  // namespace tapas::twin
