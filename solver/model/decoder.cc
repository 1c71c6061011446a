#include "solver/model/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tapas::solver {

namespace {

constexpr std::array<std::pair<AttentionScores, std::string_view>, 3> kScores = {{
    {AttentionScores::kFlash, "flash"},
    {AttentionScores::kStored, "stored"},
    {AttentionScores::kRecomputed, "recomputed"},
}};

/// Appends operators as one chain. A residual travels with the chain: one tensor crosses a cut.
class ChainBuilder {
 public:
  ChainBuilder(Graph& graph, std::string dtype) : graph_(graph), dtype_(std::move(dtype)) {}

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

/// Sizes that follow from a shape, all as doubles: elements per token unless said otherwise.
struct Sizes {
  explicit Sizes(const DecoderShape& shape)
      : e(shape.bytes_per_element),
        h(shape.hidden_size),
        s(shape.sequence_length),
        v(shape.vocabulary),
        tokens(s * shape.micro_batch_size),
        heads(shape.heads),
        head(shape.head_size == 0 ? h / heads : shape.head_size),
        latent(shape.latent.kv_rank > 0),
        key(head + shape.latent.rotary_size),
        query(heads * key),
        keys(latent ? query : head * (shape.kv_heads == 0 ? heads : shape.kv_heads)),
        values(latent ? heads * head : keys),
        mixed(heads * head),
        ffn(shape.ffn_size == 0 ? 4 * h : shape.ffn_size),
        up(shape.gated_ffn ? 2 : 1),
        bias(shape.biases ? 1 : 0) {}

  double e;  ///< bytes per element
  double h;
  double s;  ///< tokens per sample
  double v;
  double tokens;  ///< of one microbatch
  double heads;
  double head;  ///< of one head, without rotary positions of their own
  bool latent;
  double key;  ///< of one head's query and key
  double query;
  double keys;
  double values;
  double mixed;  ///< what attention gives
  double ffn;
  double up;    ///< matrices before the activation function
  double bias;  ///< 1 when linears have one
};

/// The operators of one block.
class Block {
 public:
  Block(const DecoderShape& shape, ChainBuilder& chain)
      : shape_(shape), n_(shape), x_(n_.e * n_.tokens * n_.h), chain_(chain) {}

  void add(std::uint32_t index) {
    norm();
    if (n_.latent) {
      latent_projections();
    } else {
      linear("qkv", OpKind::kColumnParallelLinear, n_.h, n_.query + n_.keys + n_.values);
    }
    attention();
    linear("projection", OpKind::kRowParallelLinear, n_.mixed, n_.h);
    residual();
    norm();
    if (shape_.experts.count > 0 && index >= shape_.experts.dense_layers) {
      experts();
    } else {
      feed_forward("mlp", n_.ffn);
    }
    residual();
  }

  // Norms, dropouts and residual additions carry no flops: published counts leave them out.
  void norm(double size = 0, const char* name = "norm") {
    const double bytes = size > 0 ? n_.e * n_.tokens * size : x_;
    chain_.add({.name = name,
                .kind = OpKind::kNorm,
                .param_bytes = n_.e * (shape_.rms_norm ? 1 : 2) * (size > 0 ? size : n_.h),
                .act_bytes = bytes,
                .work_bytes = bytes,
                .out_bytes = bytes});
  }

 private:
  [[nodiscard]] double bytes(double elements) const { return n_.e * n_.tokens * elements; }

  void linear(const std::string& name, OpKind kind, double in, double out) {
    chain_.add({.name = name,
                .kind = kind,
                .fwd_flops = 2 * n_.tokens * in * out,
                .param_bytes = n_.e * (in * out + n_.bias * out),
                .act_bytes = bytes(in),
                .work_bytes = bytes(kind == OpKind::kColumnParallelLinear ? out : in),
                .out_bytes = bytes(out)});
  }

  /// The narrow projections are whole on every device, as they are small; so are their outputs.
  void latent_projections() {
    const LatentAttention& latent = shape_.latent;
    const double narrow = latent.kv_rank + latent.rotary_size;
    chain_.add({.name = "latent_down",
                .kind = OpKind::kOther,
                .fwd_flops = 2 * n_.tokens * n_.h * (latent.query_rank + narrow),
                .param_bytes = n_.e * n_.h * (latent.query_rank + narrow),
                .act_bytes = x_,
                .work_bytes = bytes(latent.query_rank + narrow),
                .out_bytes = bytes(latent.query_rank + narrow)});
    const double ranks = latent.query_rank + latent.kv_rank;
    norm(ranks, "latent_norm");
    const double queries = latent.query_rank > 0 ? latent.query_rank : n_.h;
    const double kv = n_.heads * 2 * n_.head;
    chain_.add({.name = "latent_up",
                .kind = OpKind::kColumnParallelLinear,
                .fwd_flops = 2 * n_.tokens * (queries * n_.query + latent.kv_rank * kv),
                .param_bytes = n_.e * (queries * n_.query + latent.kv_rank * kv),
                .act_bytes = bytes(ranks),
                .work_bytes = bytes(n_.query + kv),
                .out_bytes = bytes(n_.query + n_.keys + n_.values)});
  }

  void attention() {
    const double rows = n_.tokens * n_.s * n_.heads;
    const double scores = n_.e * rows;
    const double kept_scores = shape_.dropout ? 2 * scores + rows : scores;
    const double qkv = bytes(n_.query + n_.keys + n_.values);
    OpNode op{.name = "attention",
              .kind = OpKind::kAttention,
              .fwd_flops = 2 * rows * (n_.key + n_.head),
              .act_bytes = qkv,  // the output is the projection's input and stashed there
              .work_bytes = qkv,
              .out_bytes = bytes(n_.mixed)};
    op.bwd_flops = 2 * op.fwd_flops;
    if (shape_.rotary) {  // queries and keys turned: read and written
      op.fwd_moved_bytes = 2 * bytes(n_.query + n_.keys);
      op.bwd_moved_bytes = op.fwd_moved_bytes;
    }
    if (shape_.scores == AttentionScores::kFlash) {
      op.act_bytes += 4 * n_.tokens * n_.heads;  // one fp32 softmax statistic per row and head
    } else {
      // Scores are written, scaled and masked, normalised, dropped out and read.
      op.fwd_moved_bytes += 6.5 * scores;
      op.bwd_moved_bytes += 9.5 * scores;
      op.work_bytes += 2 * scores;  // their gradients
    }
    if (shape_.scores == AttentionScores::kStored) {
      op.act_bytes += kept_scores;
    }
    if (shape_.scores == AttentionScores::kRecomputed) {
      op.bwd_flops += op.fwd_flops;
      op.bwd_moved_bytes += op.fwd_moved_bytes;
      op.work_bytes += kept_scores;
    }
    chain_.add(op);
  }

  void residual() {
    const double mask = shape_.dropout ? n_.tokens * n_.h : 0;  // one byte per element
    // With the bias and the residual: both inputs, output and mask; back the gradient twice and
    // mask.
    chain_.add({.name = shape_.dropout ? "dropout" : "residual",
                .kind = OpKind::kOther,
                .act_bytes = mask,
                .work_bytes = x_,
                .out_bytes = x_,
                .fwd_moved_bytes = 3 * x_ + mask,
                .bwd_moved_bytes = 2 * x_ + mask});
  }

  void feed_forward(const std::string& name, double inner) {
    linear(name + "_up", OpKind::kColumnParallelLinear, n_.h, n_.up * inner);
    const double inner_bytes = bytes(inner);
    chain_.add({.name = name + "_down",
                .kind = OpKind::kRowParallelLinear,
                .fwd_flops = 2 * n_.tokens * inner * n_.h,
                .param_bytes = n_.e * (inner * n_.h + n_.bias * n_.h),
                // The activation function's inputs and this linear's: all split by TP.
                .act_bytes = (n_.up + 1) * inner_bytes,
                .work_bytes = n_.up * inner_bytes,
                .out_bytes = x_,
                .fwd_moved_bytes = (n_.up + 1) * inner_bytes,
                .bwd_moved_bytes = (2 * n_.up + 1) * inner_bytes});
  }

  void experts() {
    const Experts& experts = shape_.experts;
    chain_.add({.name = "router",
                .kind = OpKind::kOther,
                .fwd_flops = 2 * n_.tokens * n_.h * experts.count,
                .param_bytes = n_.e * n_.h * experts.count,
                .act_bytes = x_ + 2 * 4 * n_.tokens * experts.count,  // input; fp32 scores
                .work_bytes = 4 * n_.tokens * experts.count,
                .out_bytes = x_});
    if (experts.shared_ffn_size > 0) {
      feed_forward("shared", experts.shared_ffn_size);
    }
    const double routed = experts.per_token;
    const double weights = (n_.up + 1) * n_.h * experts.ffn_size;
    const double inner = routed * bytes(experts.ffn_size);
    chain_.add({.name = "experts",
                .kind = OpKind::kMoe,
                .fwd_flops = 2 * n_.tokens * routed * weights,
                .param_bytes = n_.e * experts.count * weights,
                // Tokens as sent to their experts, and the activation function's inputs and
                // output. What a token's experts weigh is applied to that output, so the results
                // need not be kept.
                .act_bytes = routed * x_ + (n_.up + 1) * inner,
                .work_bytes = routed * x_ + n_.up * inner,
                .out_bytes = x_,
                // Tokens copied in order of their experts and back.
                .fwd_moved_bytes = 4 * routed * x_ + (n_.up + 1) * inner,
                .bwd_moved_bytes = 4 * routed * x_ + (2 * n_.up + 1) * inner});
  }

  const DecoderShape& shape_;
  Sizes n_;
  double x_;  ///< the hidden state, bytes
  ChainBuilder& chain_;
};

}  // namespace

std::string_view to_string(AttentionScores scores) {
  for (const auto& [known, word] : kScores) {
    if (known == scores) {
      return word;
    }
  }
  return "unknown";
}

Result<AttentionScores> attention_scores_from(std::string_view word) {
  for (const auto& [scores, known] : kScores) {
    if (known == word) {
      return scores;
    }
  }
  return fail(ErrorCode::kInvalid, "unknown attention \"{}\"; allowed: flash, stored, recomputed",
              word);
}

Result<void> validate(const DecoderShape& shape) {
  const auto complain = [&](const std::string& what) {
    return fail(ErrorCode::kInvalid, "model {}: {}", shape.name, what);
  };
  const auto within = [](std::uint32_t value, std::uint32_t max) {
    return value >= 1 && value <= max;
  };
  const Experts& experts = shape.experts;
  const LatentAttention& latent = shape.latent;
  if (!within(shape.layers, 10'000) || !within(shape.hidden_size, 1U << 20U) ||
      !within(shape.heads, 1U << 16U) || !within(shape.sequence_length, 1U << 24U) ||
      !within(shape.vocabulary, 1U << 24U) || shape.ffn_size > 1U << 23U ||
      !within(shape.micro_batch_size, 1U << 16U) || shape.head_size > 1U << 16U) {
    return complain(
        "layers (1 to 10000), hidden_size, heads, sequence_length, vocabulary and "
        "micro_batch_size must be positive and of sensible size");
  }
  if (shape.head_size == 0 && shape.hidden_size % shape.heads != 0) {
    return complain(
        fmt::format("hidden_size {} is not a multiple of heads {}; give head_size when heads are "
                    "of another size",
                    shape.hidden_size, shape.heads));
  }
  if (shape.kv_heads > 0 && shape.heads % shape.kv_heads != 0) {
    return complain(
        fmt::format("heads {} is not a multiple of kv_heads {}", shape.heads, shape.kv_heads));
  }
  if (shape.bytes_per_element != 1 && shape.bytes_per_element != 2 &&
      shape.bytes_per_element != 4) {
    return complain(
        fmt::format("bytes_per_element must be 1, 2 or 4, not {}", shape.bytes_per_element));
  }
  if (experts.count > 0 &&
      (!within(experts.per_token, experts.count) || !within(experts.ffn_size, 1U << 23U) ||
       experts.count > 1U << 16U || experts.shared_ffn_size > 1U << 23U ||
       experts.dense_layers > shape.layers)) {
    return complain(
        "experts need count, per_token (at most count) and ffn_size of sensible size, and no more "
        "dense_layers than layers");
  }
  if (latent.query_rank > 1U << 20U || latent.kv_rank > 1U << 20U ||
      latent.rotary_size > 1U << 16U ||
      (latent.kv_rank == 0 && latent.query_rank + latent.rotary_size > 0)) {
    return complain("latent attention needs kv_rank, and sizes of sensible size");
  }
  return {};
}

Result<Graph> build_decoder(const DecoderShape& shape) {
  if (const auto ok = validate(shape); !ok) {
    return tl::unexpected<Error>(ok.error());
  }
  Graph graph;
  graph.name = shape.name;
  graph.micro_batch_size = shape.micro_batch_size;
  graph.sequence_length = shape.sequence_length;
  graph.hidden_size = shape.hidden_size;

  const Sizes n(shape);
  const double hidden_bytes = n.e * n.tokens * n.h;
  ChainBuilder chain(graph, shape.bytes_per_element == 4   ? "fp32"
                            : shape.bytes_per_element == 2 ? "bf16"
                                                           : "fp8");
  chain.start_layer();
  chain.add({.name = "embedding",
             .kind = OpKind::kEmbedding,
             .param_bytes = n.e * (n.v + (shape.rotary ? 0 : n.s)) * n.h,
             .act_bytes = shape.dropout ? n.tokens * n.h : 0,
             .work_bytes = hidden_bytes,
             .out_bytes = hidden_bytes});
  Block block(shape, chain);
  for (std::uint32_t index = 0; index < shape.layers; ++index) {
    chain.start_layer();
    block.add(index);
  }
  chain.start_layer();
  block.norm();
  chain.add({.name = "head",
             .kind = OpKind::kHead,
             .fwd_flops = 2 * n.tokens * n.h * n.v,
             .param_bytes = n.e * n.v * n.h,  // tied or not, the last stage holds its own copy
             // Its input, and the softmax in fp32 that the loss turns into its gradient in place.
             .act_bytes = hidden_bytes + 4 * n.tokens * n.v,
             .work_bytes = hidden_bytes,
             .out_bytes = 4 * n.tokens,
             // Cross-entropy in fp32, pass by pass: convert, maximum, subtract, exponential, sum,
             // divide; back scale and convert.
             .fwd_moved_bytes = (n.e + 28) * n.tokens * n.v,
             .bwd_moved_bytes = (n.e + 12) * n.tokens * n.v});
  return graph;
}

ParameterCount count_parameters(const DecoderShape& shape) {
  DecoderShape one = shape;
  one.micro_batch_size = 1;
  one.bytes_per_element = 1;
  ParameterCount count;
  const auto graph = build_decoder(one);
  if (!graph) {
    return count;
  }
  const double idle = shape.experts.count - shape.experts.per_token;
  for (const OpNode& op : graph->nodes) {
    if (op.kind == OpKind::kHead && shape.tied_head) {
      continue;
    }
    count.total += op.param_bytes;
    count.active += op.param_bytes;
    if (op.kind == OpKind::kMoe) {
      count.active -= op.param_bytes * idle / shape.experts.count;
    }
  }
  return count;
}

}  // namespace tapas::solver
