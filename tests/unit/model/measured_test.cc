#include "solver/model/graph.h"
#include "solver/model/io/load.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tapas::solver {
namespace {

Graph profiled() {
  Graph graph;
  graph.name = "g";
  graph.micro_batch_size = 2;
  graph.nodes = {{.id = 0, .name = "in", .layer = 0}, {.id = 1, .name = "out", .layer = 1}};
  for (OpNode& op : graph.nodes) {
    op.measured = {{"V100", 2, 1, 0.25, 0.5},
                   {"V100", 2, 2, 0.125, 0.25, 0.01, 0.02, 1e6, 2e6, 3e6},
                   {"V100", 4, 1, 0.5, 1.0}};
  }
  return graph;
}

TEST(Measured, IsFoundByDeviceSizeAndWidth) {
  const Graph graph = profiled();
  const MeasuredOp* entry = find_measured(graph.nodes[0], "V100", 2, 2);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->backward_comm_s, 0.02);
  EXPECT_EQ(find_measured(graph.nodes[0], "V100", 4, 2), nullptr);
  EXPECT_EQ(find_measured(graph.nodes[0], "A100", 2, 1), nullptr);
}

TEST(Measured, RefusesAWidthThatWasNotProfiled) {
  Graph graph = profiled();
  EXPECT_TRUE(check_measured(graph, "V100", 2));
  EXPECT_EQ(check_measured(graph, "V100", 8).error().message,
            "no measured time of layer 0 (\"in\") at TP 8 on V100 for micro-batch size 2");
  graph.micro_batch_size = 4;
  EXPECT_FALSE(check_measured(graph, "V100", 2));
  EXPECT_TRUE(check_measured(graph, "V100", 1));
}

TEST(Measured, FallsBackToFlopsOnADeviceNeverProfiled) {
  Graph graph = profiled();
  EXPECT_FALSE(check_measured(graph, "A100", 1));
  for (OpNode& op : graph.nodes) {
    op.fwd_flops = 1;
  }
  EXPECT_TRUE(check_measured(graph, "A100", 1));
  EXPECT_FALSE(check_measured(graph, "V100", 8));
  graph.nodes[0].measured.clear();
  graph.nodes[0].fwd_flops = 0;
  EXPECT_TRUE(check_measured(graph, "V100", 1));
}

TEST(Measured, NamesTheEntryThatIsWrong) {
  const auto problem = [](const auto& change) {
    Graph graph = profiled();
    change(graph.nodes[1].measured[1]);
    const auto valid = validate(graph);
    return valid ? "" : valid.error().message;
  };
  EXPECT_EQ(problem([](MeasuredOp&) {}), "");
  EXPECT_EQ(problem([](MeasuredOp& m) { m.tp_width = 1; }),
            "graph g, node 1 \"out\": measured twice on V100 at TP 1, micro-batch size 2");
  EXPECT_NE(problem([](MeasuredOp& m) { m.device = ""; }).find("no device"), std::string::npos);
  EXPECT_NE(problem([](MeasuredOp& m) { m.tp_width = 0; }).find("at least 1"), std::string::npos);
  EXPECT_NE(problem([](MeasuredOp& m) { m.forward_s = -1; }).find("finite"), std::string::npos);
  EXPECT_NE(problem([](MeasuredOp& m) {
              m.act_bytes = std::numeric_limits<double>::infinity();
            }).find("finite"),
            std::string::npos);
}

TEST(Measured, KeepsEveryFieldThroughJson) {
  const json::Value value = graph_to_json(profiled());
  const auto again = graph_from_json(value);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(graph_to_json(*again), value);
  EXPECT_EQ(again->nodes[1].measured[1].work_bytes, 3e6);
  EXPECT_FALSE(again->nodes[1].measured[0].forward_comm_s.has_value());
  EXPECT_TRUE(again->nodes[0].measured.size() == 3);
}

TEST(Measured, RefusesUnknownKeysByPath) {
  json::Value value = graph_to_json(profiled());
  value["nodes"][1]["measured"][0]["forward_ms"] = 3;
  EXPECT_NE(graph_from_json(value).error().message.find("graph.nodes[1].measured[0]"),
            std::string::npos);
  value["nodes"][1]["measured"][0].erase("forward_ms");
  value["nodes"][1]["measured"][0].erase("forward_s");
  EXPECT_NE(graph_from_json(value).error().message.find("forward_s"), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
