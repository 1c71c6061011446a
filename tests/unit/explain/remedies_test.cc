#include "solver/search/remedies.h"

#include "solver/check/check_plan.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tapas::solver {
namespace {

/// Two nodes of four devices whose memory just falls short of the model.
Job tight_job() {
  Job job = testing::small_job(8, 2, 4, 16);
  job.limits.memory_reserve_ratio = 0;
  job.limits.recompute_ratio = 0;
  double low = 1e6;
  double high = 80e9;
  while (high - low > 1e6) {
    const double middle = (low + high) / 2;
    job.limits.device_memory_bytes = middle;
    (solve(job) ? high : low) = middle;
  }
  job.limits.device_memory_bytes = low * 0.999;
  return job;
}

const Remedy* find(const std::vector<Remedy>& remedies, const std::string& part) {
  const auto it = std::find_if(remedies.begin(), remedies.end(), [&](const Remedy& remedy) {
    return remedy.change.find(part) != std::string::npos;
  });
  return it == remedies.end() ? nullptr : &*it;
}

TEST(Remedies, AreProvedByAPlanOfTheChangedJob) {
  const Job job = tight_job();
  ASSERT_FALSE(solve(job));
  const auto remedies = find_remedies(job);
  ASSERT_FALSE(remedies.empty());
  for (const Remedy& remedy : remedies) {
    EXPECT_TRUE(check_plan(remedy.job, remedy.outcome.plan)) << remedy.change;
  }
  EXPECT_NE(find(remedies, "recompute_ratio"), nullptr);
  EXPECT_NE(find(remedies, "device_memory_bytes"), nullptr);
}

TEST(Remedies, CountTheNodesThatAreMissing) {
  Job job = testing::small_job(8, 1, 1, 16);
  job.limits.recompute_ratio = 0;
  job.limits.memory_reserve_ratio = 0;
  job.zero_stage = 0;
  job.optimizer_bytes_per_param = 1200;  // states outweigh activations: stages divide the need
  job.cluster.device_types[0].memory_bytes = 1e12;
  const auto alone = solve(job);
  ASSERT_TRUE(alone) << alone.error().message;
  job.limits.device_memory_bytes = alone->plan.predicted.stage_memory_bytes[0] * 0.4;
  ASSERT_FALSE(solve(job));
  const auto remedies = find_remedies(job);
  const Remedy* more = find(remedies, "more node");
  ASSERT_NE(more, nullptr);
  EXPECT_GT(more->job.cluster.nodes.size(), 2U);
  Job fewer = more->job;
  fewer.cluster.nodes.pop_back();
  EXPECT_FALSE(solve(fewer));
}

TEST(Remedies, AreTheSmallestOfTheirKind) {
  const Job job = tight_job();
  const auto remedies = find_remedies(job);
  const Remedy* recompute = find(remedies, "recompute_ratio");
  ASSERT_NE(recompute, nullptr);
  Job less = recompute->job;
  less.limits.recompute_ratio -= 0.0101;
  EXPECT_FALSE(less.limits.recompute_ratio >= 0 && solve(less));
  const Remedy* memory = find(remedies, "device_memory_bytes");
  ASSERT_NE(memory, nullptr);
  less = memory->job;
  less.limits.device_memory_bytes -= 0.11e9;
  EXPECT_FALSE(less.limits.device_memory_bytes > 0 && solve(less));
}

TEST(Remedies, UndoWhatTheSearchWasForbidden) {
  Job job = testing::small_job(8, 2, 4, 16);
  job.search.min_stages = 40;
  job.search.max_stages = 40;
  ASSERT_FALSE(solve(job));
  const auto remedies = find_remedies(job);
  ASSERT_NE(find(remedies, "search.min_stages"), nullptr);
  job = testing::small_job(8, 2, 4, 16);
  job.search.tp_widths = {3};
  job.search.min_stages = 5;
  ASSERT_FALSE(solve(job));
  EXPECT_NE(find(find_remedies(job), "search.tp_widths"), nullptr);
}

TEST(Remedies, NameTheStepTimeThatCanBeReached) {
  Job job = testing::small_job(8, 2, 4, 16);
  const auto best = solve(job);
  ASSERT_TRUE(best);
  job.limits.step_time_s = best->plan.predicted.step_time_s / 2;
  ASSERT_FALSE(solve(job));
  const auto remedies = find_remedies(job);
  const Remedy* longer = find(remedies, "step_time_s");
  ASSERT_NE(longer, nullptr);
  EXPECT_NEAR(longer->outcome.plan.predicted.step_time_s, best->plan.predicted.step_time_s, 1e-9);
}

}  // namespace
}  // namespace tapas::solver
