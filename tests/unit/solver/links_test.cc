#include "solver/cost/links.h"

#include "jobs.h"

#include <gtest/gtest.h>

namespace tapas::solver {
namespace {

TEST(Link, InsideANodeIsTheFastOne) {
  const Job job = testing::small_job(6, 4, 8, 16);
  const NodeType& node = job.cluster.node_types[0];
  const Link inside = link_between(job.cluster, {NodeId(1), {0}}, {NodeId(1), {1}});
  EXPECT_EQ(inside.bytes_per_s, node.fast_link_bytes_per_s);
  const Link outside = link_between(job.cluster, {NodeId(0), {0}}, {NodeId(1), {1}});
  EXPECT_EQ(outside.bytes_per_s, 4 * 25e9 / 8) << "eight devices share four NICs";
  EXPECT_EQ(outside.latency_s, job.cluster.tor.latency_s);
}

TEST(Link, PaysForTheTierItCrosses) {
  Job job = testing::small_job(6, 4, 8, 16);
  job.cluster.nodes[3].pod = "elsewhere";
  job.cluster.nodes[3].tor = "far";
  job.cluster.core.oversubscription = 4;
  const Link link = link_between(job.cluster, {NodeId(0), {0}}, {NodeId(3), {0}});
  EXPECT_EQ(link.bytes_per_s, 4 * 25e9 / 8 / 4);
  EXPECT_EQ(link.latency_s, job.cluster.core.latency_s);
}

TEST(ReplicaRings, ShareTheNicsOfTheNodesTheyLeave) {
  const Job job = testing::small_job(6, 4, 8, 16);
  // Two stages of width 4 on each node: eight rings leave it. Of width 8: also eight, of one stage.
  const Plan narrow = testing::simple_plan(job, {0, 4}, 4, 4);
  for (const Ring& ring : replica_rings(job.cluster, narrow)) {
    EXPECT_EQ(ring.members, 4U);
    EXPECT_EQ(ring.bytes_per_s, 4 * 25e9 / 8);
  }
  Plan together = narrow;  // both replicas of a stage on one node: four rings leave it
  for (std::uint32_t r = 0; r < 4; ++r) {
    for (std::uint32_t s = 0; s < 2; ++s) {
      together.placement[r][s].node = NodeId(s * 2 + r / 2);
      for (std::uint16_t d = 0; d < 4; ++d) {
        together.placement[r][s].devices[d] = static_cast<std::uint16_t>(r % 2 * 4 + d);
      }
    }
  }
  for (const Ring& ring : replica_rings(job.cluster, together)) {
    EXPECT_EQ(ring.bytes_per_s, 4 * 25e9 / 4);
  }
}

TEST(ReplicaRings, InsideOneNodeUseTheFastLink) {
  const Job job = testing::small_job(6, 1, 8, 16);
  const Plan plan = testing::simple_plan(job, {0}, 4, 2);
  EXPECT_EQ(replica_rings(job.cluster, plan)[0].bytes_per_s, 160e9);
}

TEST(BestRing, IsNoWorseThanAnyPlacedRing) {
  const Job job = testing::small_job(6, 4, 8, 16);
  for (std::uint16_t width = 1; width <= 8; width = static_cast<std::uint16_t>(2 * width)) {
    for (std::uint32_t replicas = 1; replicas <= 4; ++replicas) {
      const Plan plan = testing::simple_plan(job, {0}, replicas, width);
      const Ring best = best_ring(job.cluster, 0, width, replicas);
      const Ring real = replica_rings(job.cluster, plan)[0];
      EXPECT_GE(best.bytes_per_s, real.bytes_per_s);
      EXPECT_LE(best.latency_s, real.latency_s);
    }
  }
}

}  // namespace
}  // namespace tapas::solver
