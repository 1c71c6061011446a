#include "solver/model/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tapas::solver {
namespace {

struct Totals {
  double params = 0;
  double fwd = 0;
  double bwd = 0;
};

Totals totals_of(const Graph& graph, double bytes_per_element) {
  Totals totals;
  for (const OpNode& node : graph.nodes) {
    totals.params += node.param_bytes / bytes_per_element;
    totals.fwd += node.fwd_flops;
    totals.bwd += node.bwd_flops;
  }
  return totals;
}

double params_without_head_copy(const Graph& graph) {
  return totals_of(graph, 2).params - graph.nodes.back().param_bytes / 2;
}

GptShape gpt3() { return {"gpt3-175b", 96, 12288, 96, 2048, 51200}; }

/// Narayanan et al. 2021 (SC21), Table 1: layers, hidden size, heads, published billions.
struct Published {
  std::uint32_t layers, hidden, heads;
  double billions;
};

TEST(Gpt, CountsParametersAsPublished) {
  const auto graph = build_gpt(gpt3());
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->layer_count(), 98U);
  EXPECT_NEAR(params_without_head_copy(*graph) / 175e9, 1, 0.01);

  const std::vector<Published> table = {{24, 2304, 24, 1.7},      {30, 3072, 32, 3.6},
                                        {36, 4096, 32, 7.5},      {40, 6144, 48, 18.4},
                                        {48, 8192, 64, 39.1},     {60, 10240, 80, 76.1},
                                        {80, 12288, 96, 145.6},   {96, 16384, 128, 310.1},
                                        {105, 20480, 128, 529.6}, {128, 25600, 160, 1008.0}};
  for (const Published& row : table) {
    const auto model = build_gpt({"row", row.layers, row.hidden, row.heads, 2048, 51200});
    ASSERT_TRUE(model) << model.error().message;
    // The table prints one decimal: half a unit of it, and a tenth of a percent.
    EXPECT_NEAR(params_without_head_copy(*model) / 1e9, row.billions, 0.05 + 0.001 * row.billions)
        << row.hidden;
  }
}

TEST(Gpt, CountsFlopsByThePublishedFormula) {
  struct Case {
    std::uint32_t b, s, v;
  };
  for (const auto& [b, s, v] :
       std::vector<Case>{{1, 2048, 51200}, {4, 2048, 51200}, {2, 8192, 128256}, {16, 512, 30000}}) {
    GptShape shape = gpt3();
    shape.micro_batch_size = b;
    shape.sequence_length = s;
    shape.vocabulary = v;
    const auto graph = build_gpt(shape);
    ASSERT_TRUE(graph) << graph.error().message;
    // Narayanan et al. 2021, appendix: 96 B s l h^2 (1 + s/6h + V/16lh) with recomputation; without
    // it three quarters of the blocks' part.
    const double l = shape.layers;
    const double h = shape.hidden_size;
    const double formula = 72.0 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
    const Totals totals = totals_of(*graph, 2);
    EXPECT_NEAR((totals.fwd + totals.bwd) / formula, 1, 1e-12);
    EXPECT_NEAR(totals.bwd / totals.fwd, 2, 1e-12);
  }
}

TEST(Gpt, StashesActivationsAsKorthikantiCounts) {
  GptShape shape = gpt3();
  shape.micro_batch_size = 2;
  const auto graph = build_gpt(shape);
  ASSERT_TRUE(graph);
  const double sbh = 2048.0 * 2 * 12288;
  double split_by_tp = 0;
  double whole = 0;
  for (const OpNode& node : graph->nodes) {
    if (node.layer != 1) {
      continue;
    }
    const bool splits = node.kind == OpKind::kAttention || node.kind == OpKind::kRowParallelLinear;
    (splits ? split_by_tp : whole) += node.act_bytes;
  }
  const double statistics = 4.0 * 2048 * 2 * 96;  // softmax, one fp32 per row and head
  EXPECT_DOUBLE_EQ(whole, 10 * sbh);
  EXPECT_DOUBLE_EQ(split_by_tp, 24 * sbh + statistics);
  EXPECT_LT(statistics / (34 * sbh), 0.001);
}

TEST(Gpt, LinksOneChainWhoseCutsCarryTheHiddenState) {
  GptShape shape = gpt3();
  shape.layers = 3;
  const auto graph = build_gpt(shape);
  ASSERT_TRUE(graph);
  EXPECT_TRUE(validate(*graph));
  ASSERT_EQ(graph->edges.size() + 1, graph->nodes.size());
  int cuts = 0;
  for (const OpEdge& edge : graph->edges) {
    EXPECT_EQ(edge.bytes, graph->nodes[edge.src].out_bytes);
    if (graph->nodes[edge.src].layer != graph->nodes[edge.dst].layer) {
      ++cuts;
      EXPECT_EQ(edge.bytes, 2.0 * 2048 * 12288);
    }
  }
  EXPECT_EQ(cuts, 4);
  EXPECT_EQ(graph->nodes.back().kind, OpKind::kHead);
}

TEST(Gpt, RefusesShapesThatDoNotWork) {
  GptShape shape = gpt3();
  shape.heads = 97;
  EXPECT_NE(build_gpt(shape).error().message.find("not a multiple of heads"), std::string::npos);
  shape = gpt3();
  shape.layers = 0;
  EXPECT_FALSE(build_gpt(shape));
  shape = gpt3();
  shape.bytes_per_element = 3;
  EXPECT_FALSE(build_gpt(shape));
}

}  // namespace
}  // namespace tapas::solver
