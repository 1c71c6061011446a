#include "solver/model/cluster.h"

#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::solver {
namespace {

std::string problem(const Cluster& cluster) {
  const auto ok = validate(cluster);
  return ok ? "" : ok.error().message;
}

TEST(Cluster, NumbersDeviceSlotsNodeByNode) {
  const Cluster cluster = uneven_cluster();
  EXPECT_EQ(cluster.device_count(), 9U);
  std::uint32_t rank = 0;
  for (std::uint32_t node = 0; node < cluster.nodes.size(); ++node) {
    for (std::uint32_t device = 0; device < cluster.type_of(NodeId(node)).devices; ++device) {
      EXPECT_EQ(cluster.rank_of(NodeId(node), device), RankId(rank));
      EXPECT_EQ(cluster.node_of(RankId(rank)), NodeId(node));
      EXPECT_EQ(cluster.device_of(RankId(rank)), device);
      ++rank;
    }
  }
  EXPECT_EQ(rank, cluster.device_count());
}

TEST(Cluster, NumbersEvenNodesTheSameWay) {
  const Cluster cluster = tiny_job().cluster;
  EXPECT_EQ(cluster.device_count(), 8U);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(cluster.node_of(RankId(rank)), NodeId(rank / 2));
    EXPECT_EQ(cluster.device_of(RankId(rank)), rank % 2);
    EXPECT_EQ(cluster.rank_of(NodeId(rank / 2), rank % 2), RankId(rank));
  }
}

TEST(Cluster, FindsNodesByWholeName) {
  const Cluster cluster = uneven_cluster();
  EXPECT_EQ(cluster.find("c"), NodeId(2));
  EXPECT_EQ(cluster.find("C"), std::nullopt);
  EXPECT_EQ(cluster.find(""), std::nullopt);
}

TEST(Cluster, PicksTheTierThatTwoNodesShare) {
  const Cluster cluster = uneven_cluster();
  EXPECT_EQ(cluster.tier_between(NodeId(0), NodeId(1)).name, "tor");
  EXPECT_EQ(cluster.tier_between(NodeId(0), NodeId(2)).name, "pod");
  EXPECT_EQ(cluster.tier_between(NodeId(2), NodeId(3)).name, "core");
}

TEST(Cluster, RefusesWhatCannotBeRight) {
  EXPECT_EQ(problem(uneven_cluster()), "");
  Cluster cluster = uneven_cluster();
  cluster.nodes[1].name = "a";
  EXPECT_EQ(problem(cluster), "node a is listed twice");
  cluster = uneven_cluster();
  cluster.nodes[2].tor = "t2";
  EXPECT_EQ(problem(cluster), "node d: ToR \"t2\" is in pod \"p0\" and in pod \"p1\"");
  cluster = uneven_cluster();
  cluster.nodes[0].type = 7;
  EXPECT_NE(problem(cluster), "");
  cluster = uneven_cluster();
  cluster.node_types[0].nics = 0;
  EXPECT_NE(problem(cluster).find("cannot connect"), std::string::npos);
  cluster = uneven_cluster();
  cluster.device_types[0].matmul_efficiency = 1.2;
  EXPECT_NE(problem(cluster), "");
  cluster = uneven_cluster();
  cluster.core.oversubscription = 0.5;
  EXPECT_NE(problem(cluster), "");
  cluster = uneven_cluster();
  cluster.nodes.clear();
  EXPECT_EQ(problem(cluster), "cluster uneven has no nodes");
}

}  // namespace
}  // namespace tapas::solver
