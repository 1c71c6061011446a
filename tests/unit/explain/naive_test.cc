#include "solver/search/naive.h"

#include "solver/check/check_plan.h"
#include "solver/cost/predict.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

namespace tapas::solver {
namespace {

Job job_in_two_racks() {
  Job job = testing::small_job(6, 4, 4, 16);
  for (std::size_t n = 0; n < job.cluster.nodes.size(); ++n) {
    job.cluster.nodes[n].tor = n % 2 == 0 ? "even" : "odd";
    job.cluster.nodes[n].pod = "pod";
  }
  return job;
}

TEST(NaiveOrder, GoesThroughTheNodesOfTheFile) {
  const Job job = job_in_two_racks();
  Plan plan = testing::simple_plan(job, {0, 4}, 2, 4);
  std::swap(plan.placement[0][0], plan.placement[1][1]);
  const auto naive = in_naive_order(job, plan);
  ASSERT_TRUE(naive);
  EXPECT_TRUE(check_plan(job, *naive)) << check_plan(job, *naive).error().message;
  for (std::uint32_t g = 0; g < 2; ++g) {
    for (std::uint32_t r = 0; r < 2; ++r) {
      EXPECT_EQ(naive->placement[r][g].node.value(), g * 2 + r);
    }
  }
  EXPECT_EQ(naive->pp_splits, plan.pp_splits);
}

TEST(NaiveOrder, SkipsSparesAndGivesUpWithoutRoom) {
  Job job = job_in_two_racks();
  const Plan plan = testing::simple_plan(job, {0, 4}, 2, 4);
  job.cluster.nodes[1].spare = true;
  EXPECT_FALSE(in_naive_order(job, plan));
  const Plan smaller = testing::simple_plan(job_in_two_racks(), {0, 4}, 1, 4);
  const auto naive = in_naive_order(job, smaller);
  ASSERT_TRUE(naive);
  EXPECT_EQ(naive->placement[0][1].node.value(), 2U);
}

TEST(Traffic, CountsEachTierOnce) {
  const Job job = job_in_two_racks();
  // Stage 0 of both replicas on nodes 0 and 1, stage 1 on nodes 2 and 3: boundaries stay under one
  // ToR, rings cross.
  const Plan plan = *in_naive_order(job, testing::simple_plan(job, {0, 4}, 2, 4));
  const Traffic traffic = traffic_of(job, plan);
  const double cut = 2 * 16 / job.graph.micro_batch_size *
                     static_cast<double>(job.graph.sequence_length) * job.graph.hidden_size * 2 *
                     job.graph.micro_batch_size;
  EXPECT_NEAR(traffic.pp.tor, cut, cut * 1e-9);
  EXPECT_EQ(traffic.pp.pod + traffic.pp.core + traffic.pp.node, 0);
  EXPECT_GT(traffic.dp.pod, 0);
  EXPECT_EQ(traffic.dp.tor + traffic.dp.core + traffic.dp.node, 0);
  EXPECT_GT(traffic.tp.node, 0);
  EXPECT_EQ(traffic.tp.total(), traffic.tp.node);

  Plan swapped = plan;  // rings under one ToR instead
  std::swap(swapped.placement[1][0], swapped.placement[0][1]);
  const Traffic other = traffic_of(job, swapped);
  EXPECT_GT(other.dp.tor, 0);
  EXPECT_EQ(other.dp.pod, 0);
  EXPECT_NEAR(other.dp.total(), traffic.dp.total(), traffic.dp.total() * 1e-9);
  EXPECT_GT(other.pp.pod, 0);
}

}  // namespace
}  // namespace tapas::solver
