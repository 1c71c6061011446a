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

TEST(Link, IsAsSlowAsItsSlowestPairOfDevices) {
  Job job = testing::small_job(6, 4, 8, 16);
  NodeType& node = job.cluster.node_types[0];
  node.comm = simple_comm_table(8, node.fast_link_bytes_per_s, node.nics, node.nic_bytes_per_s);
  node.comm.paths.assign(64, {PathType::kNvl, 160e9});
  node.comm.nic_paths.assign(8, {PathType::kPxb, 20e9});
  node.comm.paths[1 * 8 + 5] = {PathType::kSys, 9e9};
  node.comm.nic_paths[6] = {PathType::kPhb, 3e9};
  const auto link = [&](const Position& from, const Position& to) {
    return link_between(job.cluster, from, to).bytes_per_s;
  };
  EXPECT_EQ(link({NodeId(0), {0, 1}}, {NodeId(0), {4, 5}}), 9e9);
  EXPECT_EQ(link({NodeId(0), {4, 5}}, {NodeId(0), {0, 1}}), 160e9) << "directed";
  EXPECT_EQ(link({NodeId(0), {0, 1}}, {NodeId(1), {4, 5}}), 4 * 25e9 / 8);
  EXPECT_EQ(link({NodeId(0), {0, 1}}, {NodeId(1), {6, 7}}), 3e9);
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

TEST(ReplicaRings, CarryWhatTheirChannelsCarry) {
  Job job = testing::small_job(6, 4, 8, 16);
  NodeType& node = job.cluster.node_types[0];
  node.comm = simple_comm_table(8, node.fast_link_bytes_per_s, node.nics, node.nic_bytes_per_s);
  for (CommShape& shape : node.comm.shapes) {
    shape.inside.ring = {.channels = 6, .intra_bytes_per_s = 20e9, .inter_bytes_per_s = 20e9};
    shape.across.ring = {
        .channels = shape.per_node, .intra_bytes_per_s = 20e9, .inter_bytes_per_s = 11e9};
  }
  const auto rate = [&](const std::vector<std::uint32_t>& cuts, std::uint32_t replicas,
                        std::uint16_t width) {
    return replica_rings(job.cluster, testing::simple_plan(job, cuts, replicas, width))[0]
        .bytes_per_s;
  };
  EXPECT_EQ(rate({0}, 2, 4), 6 * 20e9);
  EXPECT_EQ(rate({0}, 8, 4), 2 * 11e9) << "two of a ring's members on each node";
  EXPECT_EQ(rate({0}, 16, 2), 4 * 11e9);
  EXPECT_EQ(rate({0}, 4, 8), 11e9);
}

TEST(BestRing, IsNoWorseThanAnyPlacedRing) {
  Job job = testing::small_job(6, 4, 8, 16);
  testing::Draw draw(5);
  for (int round = 0; round < 20; ++round) {
    if (round > 0) {
      NodeType& node = job.cluster.node_types[0];
      node.comm = simple_comm_table(8, node.fast_link_bytes_per_s, node.nics, node.nic_bytes_per_s);
      for (CommShape& shape : node.comm.shapes) {
        for (CommGraph* graph : {&shape.inside, &shape.across}) {
          graph->ring = {.channels = draw.between(1U, 12U),
                         .intra_bytes_per_s = draw.between(3e9, 24e9),
                         .inter_bytes_per_s = draw.between(3e9, 24e9)};
        }
      }
    }
    for (std::uint16_t width = 1; width <= 8; width = static_cast<std::uint16_t>(2 * width)) {
      for (const std::uint32_t replicas : {1U, 2U, 3U, 4U, 8U, 16U, 32U}) {
        if (replicas * width > 32) {
          continue;
        }
        const Plan plan = testing::simple_plan(job, {0}, replicas, width);
        const Ring best = best_ring(job.cluster, 0, width, replicas);
        const Ring real = replica_rings(job.cluster, plan)[0];
        EXPECT_GE(best.bytes_per_s, real.bytes_per_s);
        EXPECT_LE(best.latency_s, real.latency_s);
      }
    }
  }
}

}  // namespace
}  // namespace tapas::solver
