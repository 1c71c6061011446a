#include "solver/model/decoder.h"

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

DecoderShape gpt3() { return {"gpt3-175b", 96, 12288, 96, 2048, 51200}; }

/// Narayanan et al. 2021 (SC21), Table 1: layers, hidden size, heads, published billions.
struct Published {
  std::uint32_t layers, hidden, heads;
  double billions;
};

TEST(Decoder, CountsParametersAsPublished) {
  const auto graph = build_decoder(gpt3());
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->layer_count(), 98U);
  EXPECT_NEAR(params_without_head_copy(*graph) / 175e9, 1, 0.01);

  const std::vector<Published> table = {{24, 2304, 24, 1.7},      {30, 3072, 32, 3.6},
                                        {36, 4096, 32, 7.5},      {40, 6144, 48, 18.4},
                                        {48, 8192, 64, 39.1},     {60, 10240, 80, 76.1},
                                        {80, 12288, 96, 145.6},   {96, 16384, 128, 310.1},
                                        {105, 20480, 128, 529.6}, {128, 25600, 160, 1008.0}};
  for (const Published& row : table) {
    const auto model = build_decoder({"row", row.layers, row.hidden, row.heads, 2048, 51200});
    ASSERT_TRUE(model) << model.error().message;
    // The table prints one decimal: half a unit of it, and a tenth of a percent.
    EXPECT_NEAR(params_without_head_copy(*model) / 1e9, row.billions, 0.05 + 0.001 * row.billions)
        << row.hidden;
  }
}

TEST(Decoder, CountsFlopsByThePublishedFormula) {
  struct Case {
    std::uint32_t b, s, v;
  };
  for (const auto& [b, s, v] :
       std::vector<Case>{{1, 2048, 51200}, {4, 2048, 51200}, {2, 8192, 128256}, {16, 512, 30000}}) {
    DecoderShape shape = gpt3();
    shape.micro_batch_size = b;
    shape.sequence_length = s;
    shape.vocabulary = v;
    const auto graph = build_decoder(shape);
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

TEST(Decoder, StashesActivationsAsKorthikantiCounts) {
  DecoderShape shape = gpt3();
  shape.micro_batch_size = 2;
  const auto graph = build_decoder(shape);
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

TEST(Decoder, LinksOneChainWhoseCutsCarryTheHiddenState) {
  DecoderShape shape = gpt3();
  shape.layers = 3;
  const auto graph = build_decoder(shape);
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

DecoderShape llama3(std::uint32_t layers, std::uint32_t hidden, std::uint32_t heads,
                    std::uint32_t ffn) {
  DecoderShape shape{"llama3", layers, hidden, heads, 4096, 128256, ffn};
  shape.kv_heads = 8;
  shape.gated_ffn = shape.rms_norm = shape.rotary = true;
  shape.biases = shape.dropout = shape.tied_head = false;
  return shape;
}

double layer_sum(const Graph& graph, std::uint32_t layer, double OpNode::*field) {
  double sum = 0;
  for (const OpNode& node : graph.nodes) {
    sum += node.layer == layer ? node.*field : 0;
  }
  return sum;
}

TEST(Decoder, BuildsAGroupedQueryBlockWithAGatedNetwork) {
  const auto graph = build_decoder(llama3(2, 8192, 64, 28672));
  ASSERT_TRUE(graph) << graph.error().message;
  const double h = 8192;
  const double kv = 8 * 128;
  const double f = 28672;
  const double t = 4096;
  EXPECT_DOUBLE_EQ(layer_sum(*graph, 1, &OpNode::param_bytes),
                   2 * (2 * h * h + 2 * h * kv + 3 * h * f + 2 * h));
  EXPECT_DOUBLE_EQ(layer_sum(*graph, 1, &OpNode::fwd_flops),
                   2 * t * (2 * h * h + 2 * h * kv + 3 * h * f) + 4 * t * t * h);
  // Two norms, two linears' inputs, Q, K, V, attention's output, and three of the network.
  EXPECT_DOUBLE_EQ(layer_sum(*graph, 1, &OpNode::act_bytes),
                   2 * t * (6 * h + 2 * kv + 3 * f) + 4 * t * 64);
  EXPECT_DOUBLE_EQ(layer_sum(*graph, 0, &OpNode::param_bytes), 2 * 128256 * h) << "no positions";
}

TEST(Decoder, KeepsMakesAgainOrNeverStoresAttentionScores) {
  DecoderShape shape = gpt3();
  shape.layers = 1;
  const double rows = 96.0 * 2048 * 2048;
  const auto attention = [&](AttentionScores scores) {
    shape.scores = scores;
    return build_decoder(shape)->nodes[3];
  };
  const OpNode flash = attention(AttentionScores::kFlash);
  const OpNode stored = attention(AttentionScores::kStored);
  const OpNode again = attention(AttentionScores::kRecomputed);
  ASSERT_EQ(flash.kind, OpKind::kAttention);
  const double qkv = 6.0 * 2048 * 12288;
  EXPECT_DOUBLE_EQ(flash.act_bytes, qkv + 4.0 * 2048 * 96);
  EXPECT_DOUBLE_EQ(stored.act_bytes, qkv + 5 * rows) << "softmax, dropout's mask and its output";
  EXPECT_DOUBLE_EQ(again.act_bytes, qkv);
  EXPECT_DOUBLE_EQ(again.work_bytes - stored.work_bytes, 5 * rows) << "one block's at a time";
  EXPECT_DOUBLE_EQ(stored.bwd_flops, 2 * stored.fwd_flops);
  EXPECT_DOUBLE_EQ(again.bwd_flops, 3 * again.fwd_flops) << "the forward once more";
  shape.dropout = false;
  EXPECT_DOUBLE_EQ(attention(AttentionScores::kStored).act_bytes, qkv + 2 * rows);
}

TEST(Decoder, GivesEachTokenItsExpertsAndCountsTheRestAsIdle) {
  DecoderShape shape = llama3(4, 4096, 32, 14336);
  shape.experts = {
      .count = 8, .per_token = 2, .ffn_size = 14336, .shared_ffn_size = 1024, .dense_layers = 1};
  const auto graph = build_decoder(shape);
  ASSERT_TRUE(graph) << graph.error().message;
  const double expert = 3.0 * 4096 * 14336;
  int moe = 0;
  for (const OpNode& node : graph->nodes) {
    if (node.kind == OpKind::kMoe) {
      ++moe;
      EXPECT_GE(node.layer, 2U) << "the first block is dense";
      EXPECT_DOUBLE_EQ(node.param_bytes, 2 * 8 * expert);
      EXPECT_DOUBLE_EQ(node.fwd_flops, 2 * 4096.0 * 2 * expert);
    }
  }
  EXPECT_EQ(moe, 3);
  const ParameterCount count = count_parameters(shape);
  EXPECT_DOUBLE_EQ(count.total - count.active, 3 * 6 * expert);
}

TEST(Decoder, ScalesWithTheMicroBatch) {
  DecoderShape shape = llama3(2, 1024, 8, 4096);
  shape.experts = {.count = 4, .per_token = 2, .ffn_size = 512};
  const Graph one = build_decoder(shape).value();
  shape.micro_batch_size = 3;
  const Graph three = build_decoder(shape).value();
  for (std::size_t k = 0; k < one.nodes.size(); ++k) {
    EXPECT_DOUBLE_EQ(three.nodes[k].param_bytes, one.nodes[k].param_bytes);
    for (const auto field :
         {&OpNode::fwd_flops, &OpNode::bwd_flops, &OpNode::act_bytes, &OpNode::work_bytes,
          &OpNode::out_bytes, &OpNode::fwd_moved_bytes, &OpNode::bwd_moved_bytes}) {
      EXPECT_DOUBLE_EQ(three.nodes[k].*field, 3 * one.nodes[k].*field) << one.nodes[k].name;
    }
  }
}

TEST(Decoder, RefusesShapesThatDoNotWork) {
  DecoderShape shape = gpt3();
  shape.heads = 97;
  EXPECT_NE(build_decoder(shape).error().message.find("not a multiple of heads"),
            std::string::npos);
  shape = gpt3();
  shape.layers = 0;
  EXPECT_FALSE(build_decoder(shape));
  shape = gpt3();
  shape.bytes_per_element = 3;
  EXPECT_FALSE(build_decoder(shape));
  shape = gpt3();
  shape.kv_heads = 7;
  EXPECT_NE(build_decoder(shape).error().message.find("not a multiple of kv_heads 7"),
            std::string::npos);
  shape = gpt3();
  shape.experts = {.count = 4, .per_token = 5, .ffn_size = 64};
  EXPECT_NE(build_decoder(shape).error().message.find("per_token"), std::string::npos);
  shape = gpt3();
  shape.latent.query_rank = 64;
  EXPECT_NE(build_decoder(shape).error().message.find("kv_rank"), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
