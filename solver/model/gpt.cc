#include "solver/model/graph.h"

#include <utility>

namespace tapas::solver {

namespace {

/// Appends operators as one chain. A residual travels with the chain: one tensor crosses a cut.
class ChainBuilder {
 public:
  explicit ChainBuilder(Graph& graph, std::string dtype)
      : graph_(graph), dtype_(std::move(dtype)) {}

  void start_layer() {
    if (!graph_.nodes.empty()) {
      ++layer_;
    }
  }

  void add(OpNode node) {
    node.id = static_cast<std::uint32_t>(graph_.nodes.size());
    node.layer = layer_;
    if (node.bwd_flops == 0) {
      node.bwd_flops = 2 * node.fwd_flops;  // gradients of inputs and of weights
    }
    if (!graph_.nodes.empty()) {
      const OpNode& before = graph_.nodes.back();
      graph_.edges.push_back({before.id, node.id, before.out_bytes, dtype_});
    }
    graph_.nodes.push_back(std::move(node));
  }

 private:
  Graph& graph_;
  std::string dtype_;
  std::uint32_t layer_ = 0;
};

Result<void> check_shape(const GptShape& shape) {
  const auto within = [](std::uint32_t value, std::uint32_t max) {
    return value >= 1 && value <= max;
  };
  if (!within(shape.layers, 10'000) || !within(shape.hidden_size, 1U << 20U) ||
      !within(shape.heads, 1U << 16U) || !within(shape.sequence_length, 1U << 24U) ||
      !within(shape.vocabulary, 1U << 24U) || shape.ffn_size > 1U << 23U ||
      !within(shape.micro_batch_size, 1U << 16U)) {
    return fail(
        ErrorCode::kInvalid,
        "GPT shape {}: layers (1 to 10000), hidden_size, heads, sequence_length, vocabulary "
        "and micro_batch_size must be positive and of sensible size",
        shape.name);
  }
  if (shape.hidden_size % shape.heads != 0) {
    return fail(ErrorCode::kInvalid, "GPT shape {}: hidden_size {} is not a multiple of heads {}",
                shape.name, shape.hidden_size, shape.heads);
  }
  if (shape.bytes_per_element != 1 && shape.bytes_per_element != 2 &&
      shape.bytes_per_element != 4) {
    return fail(ErrorCode::kInvalid, "GPT shape {}: bytes_per_element must be 1, 2 or 4, not {}",
                shape.name, shape.bytes_per_element);
  }
  return {};
}

}  // namespace

Result<Graph> build_gpt(const GptShape& shape) {
  if (const auto ok = check_shape(shape); !ok) {
    return tl::unexpected<Error>(ok.error());
  }
  Graph graph;
  graph.name = shape.name;
  graph.micro_batch_size = shape.micro_batch_size;
  graph.sequence_length = shape.sequence_length;
  graph.hidden_size = shape.hidden_size;

  const double e = shape.bytes_per_element;
  const double h = shape.hidden_size;
  const double f = shape.ffn_size == 0 ? 4 * h : shape.ffn_size;
  const double s = shape.sequence_length;
  const double v = shape.vocabulary;
  const double tokens = s * shape.micro_batch_size;
  const double hidden_bytes = e * tokens * h;
  const double ffn_bytes = e * tokens * f;
  const double mask_bytes = tokens * h;  // one byte per element

  // Norms, dropouts and residual additions carry no flops: published counts leave them out.
  const OpNode norm{.name = "norm",
                    .kind = OpKind::kNorm,
                    .param_bytes = e * 2 * h,
                    .act_bytes = hidden_bytes,
                    .work_bytes = hidden_bytes,
                    .out_bytes = hidden_bytes};
  // With the bias and the residual: both inputs, output and mask; back the gradient twice and mask.
  const OpNode dropout{.name = "dropout",
                       .kind = OpKind::kOther,
                       .act_bytes = mask_bytes,
                       .work_bytes = hidden_bytes,
                       .out_bytes = hidden_bytes,
                       .fwd_moved_bytes = 3 * hidden_bytes + mask_bytes,
                       .bwd_moved_bytes = 2 * hidden_bytes + mask_bytes};

  ChainBuilder chain(graph, shape.bytes_per_element == 4   ? "fp32"
                            : shape.bytes_per_element == 2 ? "bf16"
                                                           : "fp8");
  chain.start_layer();
  chain.add({.name = "embedding",
             .kind = OpKind::kEmbedding,
             .param_bytes = e * (v + s) * h,  // tokens and positions
             .act_bytes = mask_bytes,
             .work_bytes = hidden_bytes,
             .out_bytes = hidden_bytes});

  for (std::uint32_t block = 0; block < shape.layers; ++block) {
    chain.start_layer();
    chain.add(norm);
    chain.add({.name = "qkv",
               .kind = OpKind::kColumnParallelLinear,
               .fwd_flops = 2 * tokens * h * 3 * h,
               .param_bytes = e * (3 * h * h + 3 * h),
               .act_bytes = hidden_bytes,
               .work_bytes = 3 * hidden_bytes,
               .out_bytes = 3 * hidden_bytes});
    chain.add({.name = "attention",
               .kind = OpKind::kAttention,
               .fwd_flops = 4 * tokens * s * h,
               // Q, K, V, and one fp32 softmax statistic per row and head; the output is the
               // projection's input and stashed there.
               .act_bytes = 3 * hidden_bytes + 4 * tokens * shape.heads,
               .work_bytes = hidden_bytes,
               .out_bytes = hidden_bytes});
    chain.add({.name = "projection",
               .kind = OpKind::kRowParallelLinear,
               .fwd_flops = 2 * tokens * h * h,
               .param_bytes = e * (h * h + h),
               .act_bytes = hidden_bytes,
               .work_bytes = hidden_bytes,
               .out_bytes = hidden_bytes});
    chain.add(dropout);
    chain.add(norm);
    chain.add({.name = "mlp_up",
               .kind = OpKind::kColumnParallelLinear,
               .fwd_flops = 2 * tokens * h * f,
               .param_bytes = e * (h * f + f),
               .act_bytes = hidden_bytes,
               .work_bytes = ffn_bytes,
               .out_bytes = ffn_bytes});
    chain.add({.name = "mlp_down",
               .kind = OpKind::kRowParallelLinear,
               .fwd_flops = 2 * tokens * f * h,
               .param_bytes = e * (f * h + h),
               .act_bytes = 2 * ffn_bytes,  // GELU's input and this linear's: both split by TP
               .work_bytes = ffn_bytes,
               .out_bytes = hidden_bytes,
               .fwd_moved_bytes = 2 * ffn_bytes,    // GELU's input and output
               .bwd_moved_bytes = 3 * ffn_bytes});  // its input, both gradients
    chain.add(dropout);
  }

  chain.start_layer();
  chain.add(norm);
  chain.add({.name = "head",
             .kind = OpKind::kHead,
             .fwd_flops = 2 * tokens * h * v,
             .param_bytes = e * v * h,  // tied weights: the last stage holds its own copy
             .act_bytes = hidden_bytes + 4 * tokens * v,  // input, and logits in fp32
             .work_bytes = e * tokens * v,
             .out_bytes = 4 * tokens,
             // Cross-entropy in fp32, pass by pass: convert, maximum, subtract, exponential, sum,
             // divide; back scale and convert.
             .fwd_moved_bytes = (e + 28) * tokens * v,
             .bwd_moved_bytes = (e + 12) * tokens * v});
  return graph;
}

}  // namespace tapas::solver
