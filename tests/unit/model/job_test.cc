#include "solver/model/job.h"

#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::solver {
namespace {

std::string problem(const Job& job) {
  const auto ok = validate(job);
  return ok ? "" : ok.error().message;
}

TEST(Job, CountsMicrobatches) {
  Job job = tiny_job();
  EXPECT_EQ(problem(job), "");
  EXPECT_EQ(job.total_microbatches(), 16U);
  job.graph.micro_batch_size = 4;
  EXPECT_EQ(job.total_microbatches(), 4U);
  job.graph.micro_batch_size = 5;
  EXPECT_NE(problem(job).find("not a positive multiple of micro_batch_size 5"), std::string::npos);
}

TEST(Job, RefusesSettingsOutOfRange) {
  Job job = tiny_job();
  job.zero_stage = 3;
  EXPECT_NE(problem(job).find("zero_stage is 3"), std::string::npos);
  job = tiny_job();
  job.search.min_stages = 9;
  EXPECT_NE(problem(job).find("min_stages"), std::string::npos);
  job = tiny_job();
  job.search.tp_widths = {4};
  EXPECT_NE(problem(job).find("TP width 4 does not fit a node of 2 devices"), std::string::npos);
  job = tiny_job();
  job.limits.memory_reserve_ratio = 1;
  EXPECT_NE(problem(job), "");
  job = tiny_job();
  job.global_batch = 0;
  EXPECT_NE(problem(job), "");
  job = tiny_job();
  job.name = "a b";
  EXPECT_NE(problem(job), "");
}

TEST(Job, SpellsItsChoicesAsInFiles) {
  EXPECT_EQ(to_string(Schedule::k1f1b), "1f1b");
  EXPECT_EQ(to_string(Schedule::kGpipe), "gpipe");
  EXPECT_EQ(to_string(Schedule::kInterleaved), "interleaved");
  EXPECT_EQ(to_string(CostModelKind::kPhysical), "physical");
  EXPECT_EQ(to_string(CostModelKind::kDocument), "document");
}

}  // namespace
}  // namespace tapas::solver
