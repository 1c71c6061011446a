#include "solver/model/graph.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tapas::solver {
namespace {

Graph two_layers() {
  Graph graph;
  graph.name = "g";
  graph.nodes = {{.id = 7, .name = "in", .layer = 0},
                 {.id = 3, .name = "mid", .layer = 0},
                 {.id = 9, .name = "out", .layer = 1}};
  graph.edges = {{7, 3, 10, "bf16"}, {3, 9, 10, "bf16"}};
  return graph;
}

std::string problem(const Graph& graph) {
  const auto ok = validate(graph);
  return ok ? "" : ok.error().message;
}

TEST(Graph, AcceptsAnyIdsInTopologicalOrder) {
  EXPECT_EQ(problem(two_layers()), "");
  EXPECT_EQ(two_layers().layer_count(), 2U);
  EXPECT_EQ(Graph{}.layer_count(), 0U);
}

TEST(Graph, NamesTheNodeThatIsWrong) {
  Graph graph = two_layers();
  graph.nodes[2].layer = 2;
  EXPECT_EQ(problem(graph).rfind("graph g, node 9 \"out\": layer 2 follows layer 0", 0), 0U);
  graph = two_layers();
  graph.nodes[0].layer = 1;
  EXPECT_NE(problem(graph).find("node 7"), std::string::npos);
  graph = two_layers();
  graph.nodes[1].layer = 1;
  graph.nodes[2].layer = 0;
  EXPECT_NE(problem(graph).find("node 9"), std::string::npos);
  graph = two_layers();
  graph.nodes[2].id = 7;
  EXPECT_NE(problem(graph).find("used by another"), std::string::npos);
  graph = two_layers();
  graph.nodes[1].act_bytes = -1;
  EXPECT_NE(problem(graph).find("node 3 \"mid\""), std::string::npos);
  graph.nodes[1].act_bytes = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(problem(graph).find("finite"), std::string::npos);
}

TEST(Graph, RefusesEdgesThatLeadNowhereOrBack) {
  Graph graph = two_layers();
  graph.edges.push_back({3, 4, 1, "bf16"});
  EXPECT_NE(problem(graph).find("3 -> 4 names a node that does not exist"), std::string::npos);
  graph = two_layers();
  graph.edges.push_back({9, 7, 1, "bf16"});
  EXPECT_NE(problem(graph).find("goes backwards"), std::string::npos);
  graph = two_layers();
  graph.edges.push_back({7, 7, 1, "bf16"});
  EXPECT_NE(problem(graph).find("goes backwards"), std::string::npos);
}

TEST(OpKind, ReadsItsOwnWords) {
  for (int i = 0; i <= static_cast<int>(OpKind::kOther); ++i) {
    const auto kind = static_cast<OpKind>(i);
    EXPECT_EQ(op_kind_from(to_string(kind)).value(), kind);
  }
  EXPECT_NE(op_kind_from("linear").error().message.find("column_parallel_linear"),
            std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
