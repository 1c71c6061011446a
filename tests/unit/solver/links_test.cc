#include "solver/cost/links.h"

#include "jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace tapas::solver {
namespace {

/// Nodes of two types in two pods, with tiers that differ.
Job mixed_cluster(testing::Draw& draw) {
  Job job = testing::small_job(6, 6, 8, 16);
  Cluster& cluster = job.cluster;
  cluster.node_types.push_back(cluster.node_types[0]);
  for (NodeType& type : cluster.node_types) {
    type.nic_bytes_per_s = draw.between(10e9, 50e9);
    type.nics = draw.between(1U, 10U);
    type.fast_link_bytes_per_s = draw.between(30e9, 300e9);
  }
  for (Node& node : cluster.nodes) {
    node.type = draw.between(0U, 1U);
    node.pod = draw.between(0U, 1U) == 0 ? "near" : "far";
    node.tor = node.pod + (draw.between(0U, 1U) == 0 ? "-a" : "-b");
  }
  cluster.pod.oversubscription = draw.between(1.0, 3.0);
  cluster.core.oversubscription = draw.between(3.0, 6.0);
  return job;
}

/// Groups of `width` on slots drawn at random.
Plan scattered_plan(const Job& job, testing::Draw& draw, std::uint32_t stages,
                    std::uint32_t replicas, std::uint32_t width) {
  std::vector<Position> slots;
  for (std::uint32_t n = 0; n < job.cluster.nodes.size(); ++n) {
    for (std::uint32_t d = 0; d < 8; d += width) {
      Position& slot = slots.emplace_back(Position{NodeId(n), {}});
      for (std::uint32_t k = 0; k < width; ++k) {
        slot.devices.push_back(static_cast<std::uint16_t>(d + k));
      }
    }
  }
  Plan plan;
  for (std::uint32_t s = 0; s < stages; ++s) {
    plan.pp_splits.push_back(s);
  }
  plan.placement.assign(replicas, std::vector<Position>(stages));
  for (auto& row : plan.placement) {
    for (Position& position : row) {
      const std::uint32_t k = draw.between(0U, static_cast<std::uint32_t>(slots.size()) - 1);
      position = slots[k];
      slots.erase(slots.begin() + k);
    }
  }
  return plan;
}

/// Every ring of every TP rank as a list of flows between nodes; flows share a node's NICs.
std::vector<double> ring_rates(const Cluster& cluster, const Plan& plan,
                               const ClusterState& state) {
  struct Flow {
    std::uint32_t stage = 0;
    NodeId from;
    NodeId to;
  };
  std::vector<Flow> flows;
  std::map<NodeId, double> leaving;
  std::map<NodeId, double> arriving;
  std::vector<double> rates(plan.stages(), 1e30);
  for (std::uint32_t s = 0; s < plan.stages(); ++s) {
    std::vector<NodeId> order;
    for (const auto& row : plan.placement) {
      order.push_back(row[s].node);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t k = 0; k < order.size(); ++k) {
      const NodeId from = order[k];
      const NodeId to = order[(k + 1) % order.size()];
      const double inside = cluster.type_of(from).fast_link_bytes_per_s / state.links(from).inside;
      if (from == to) {
        rates[s] = std::min(rates[s], inside);
        continue;
      }
      for (std::size_t t = 0; t < plan.placement[0][s].devices.size(); ++t) {
        flows.push_back({s, from, to});
        leaving[from] += 1;
        arriving[to] += 1;
      }
    }
  }
  for (const Flow& flow : flows) {
    const NodeType& a = cluster.type_of(flow.from);
    const NodeType& b = cluster.type_of(flow.to);
    const double over = cluster.tier_between(flow.from, flow.to).oversubscription;
    const double out =
        std::min(a.fast_link_bytes_per_s, a.nics * a.nic_bytes_per_s / leaving[flow.from] / over) /
        state.links(flow.from).send;
    const double in =
        std::min(b.fast_link_bytes_per_s, b.nics * b.nic_bytes_per_s / arriving[flow.to] / over) /
        state.links(flow.to).receive;
    rates[flow.stage] =
        std::min(rates[flow.stage], std::min(out, in) / state.path(flow.from, flow.to));
  }
  return rates;
}

TEST(Link, TakesEachDirectionAsItWasMeasured) {
  testing::Draw draw(11);
  for (int round = 0; round < 50; ++round) {
    const Job job = mixed_cluster(draw);
    const Cluster& cluster = job.cluster;
    const ClusterState state = testing::random_state(cluster, draw, draw.between(0U, 6U));
    for (std::uint32_t a = 0; a < 6; ++a) {
      for (std::uint32_t b = 0; b < 6; ++b) {
        const NodeId from(a);
        const NodeId to(b);
        const Link link = link_between(cluster, {from, {0, 1}}, {to, {2, 3}}, state);
        const Link healthy = link_between(cluster, {from, {0, 1}}, {to, {2, 3}});
        EXPECT_EQ(link.latency_s, healthy.latency_s);
        const auto share = [&](NodeId node) {
          const NodeType& type = cluster.type_of(node);
          return std::min(type.nic_bytes_per_s, type.nic_bytes_per_s * type.nics / 8);
        };
        double expected = cluster.type_of(from).fast_link_bytes_per_s / state.links(from).inside;
        if (a != b) {
          expected =
              std::min(share(from) / state.links(from).send, share(to) / state.links(to).receive);
          expected /= cluster.tier_between(from, to).oversubscription * state.path(from, to);
        }
        EXPECT_NEAR(link.bytes_per_s, expected, 1e-9 * expected);
      }
    }
  }
}

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

TEST(ReplicaRings, RunAtTheRateOfTheirSlowestFlow) {
  testing::Draw draw(12);
  for (int round = 0; round < 200; ++round) {
    const Job job = mixed_cluster(draw);
    const std::uint32_t width = 1U << draw.between(0U, 3U);
    const std::uint32_t slots = 48 / width;
    const std::uint32_t stages = draw.between(1U, std::min(slots, 4U));
    const std::uint32_t replicas = draw.between(2U, std::max(2U, std::min(slots / stages, 6U)));
    if (stages * replicas > slots) {
      continue;
    }
    const Plan plan = scattered_plan(job, draw, stages, replicas, width);
    const ClusterState state =
        round % 4 == 0 ? ClusterState{}
                       : testing::random_state(job.cluster, draw, draw.between(0U, 10U));
    const std::vector<Ring> rings = replica_rings(job.cluster, plan, state);
    const std::vector<double> expected = ring_rates(job.cluster, plan, state);
    for (std::uint32_t s = 0; s < stages; ++s) {
      EXPECT_NEAR(rings[s].bytes_per_s, expected[s], 1e-9 * expected[s]) << "round " << round;
    }
  }
}

TEST(ReplicaRings, OfANarrowerGroupLeaveItsNodeFewAtATime) {
  const Job job = testing::small_job(6, 2, 8, 16);
  Plan plan = testing::simple_plan(job, {0}, 2, 8);
  plan.placement[1][0].devices = {0, 1, 2, 3};
  // The eight rings of replica 0 leave its node at once: the slower side.
  EXPECT_EQ(replica_rings(job.cluster, plan)[0].bytes_per_s, 4 * 25e9 / 8);
  plan.placement[0][0].devices = {0, 1, 2, 3};
  EXPECT_EQ(replica_rings(job.cluster, plan)[0].bytes_per_s, 4 * 25e9 / 4);
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
