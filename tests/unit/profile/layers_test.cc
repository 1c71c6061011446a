#include "solver/profile/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

namespace tapas::solver::profile {
namespace {

OpNode op(std::uint32_t id, double seconds) {
  OpNode node;
  node.id = id;
  node.name = std::to_string(id);
  node.measured.push_back({"gpu", 1, 1, seconds, seconds});
  return node;
}

TEST(Arrange, PutsInputsNextToTheirConsumer) {
  Graph graph;
  graph.name = "g";
  graph.nodes = {op(0, 0), op(1, 0), op(2, 1), op(3, 1)};
  graph.edges = {{0, 2, 1, ""}, {1, 3, 1, ""}, {2, 3, 1, ""}};
  ASSERT_TRUE(arrange(graph));
  std::string order;
  for (const OpNode& node : graph.nodes) {
    order += node.name;
  }
  EXPECT_EQ(order, "1023");
  EXPECT_EQ(graph.layer_count(), 2U);
  EXPECT_TRUE(validate(graph));
}

TEST(Arrange, NeverLosesANodeOrAnEdge) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    Graph graph;
    graph.name = "g";
    const std::uint32_t n = 1 + below(30);
    std::vector<std::uint32_t> ids(n);
    for (std::uint32_t k = 0; k < n; ++k) {
      ids[k] = k * 7 + 3;
    }
    std::shuffle(ids.begin(), ids.end(), random);
    for (const std::uint32_t id : ids) {
      graph.nodes.push_back(op(id, below(3) == 0 ? 0 : 1));
    }
    std::shuffle(ids.begin(), ids.end(), random);
    for (std::uint32_t k = 0; k < 2 * n; ++k) {
      const std::uint32_t a = below(n);
      const std::uint32_t b = below(n);
      if (a < b) {
        graph.edges.push_back({ids[a], ids[b], 1, ""});
      }
    }
    const std::size_t edges = graph.edges.size();
    ASSERT_TRUE(arrange(graph));
    EXPECT_EQ(graph.nodes.size(), n);
    EXPECT_EQ(graph.edges.size(), edges);
    ASSERT_TRUE(validate(graph)) << validate(graph).error().message;
    std::map<std::uint32_t, int> costly;
    for (const OpNode& node : graph.nodes) {
      costly[node.layer] += node.measured[0].forward_s > 0 ? 1 : 0;
    }
    for (const auto& [layer, count] : costly) {
      EXPECT_LE(count, 1) << layer;
      EXPECT_TRUE(count == 1 || costly.size() == 1) << layer;
    }
  }
}

TEST(Arrange, RefusesCyclesHoweverTheyAreReached) {
  Graph graph;
  graph.name = "g";
  graph.nodes = {op(0, 1), op(1, 1), op(2, 1)};
  graph.edges = {{0, 1, 1, ""}, {1, 0, 1, ""}};
  EXPECT_NE(arrange(graph).error().message.find("cycle"), std::string::npos);
  graph.edges.push_back({1, 2, 1, ""});
  EXPECT_NE(arrange(graph).error().message.find("cycle"), std::string::npos);
  graph.edges = {{2, 2, 1, ""}};
  EXPECT_NE(arrange(graph).error().message.find("cycle"), std::string::npos);
}

TEST(Arrange, StandsAChainOfAnyLength) {
  Graph graph;
  graph.name = "g";
  constexpr std::uint32_t kLong = 50'000;
  for (std::uint32_t k = 0; k < kLong; ++k) {
    graph.nodes.push_back(op(kLong - 1 - k, 1));
    if (k > 0) {
      graph.edges.push_back({k - 1, k, 1, ""});
    }
  }
  ASSERT_TRUE(arrange(graph));
  EXPECT_EQ(graph.layer_count(), kLong);
}

}  // namespace
}  // namespace tapas::solver::profile
