#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::solver {

enum class OpKind : std::uint8_t {
  kEmbedding,
  kMoe,
  kColumnParallelLinear,
  kRowParallelLinear,
  kAttention,
  kNorm,
  kHead,
  kOther,
};
std::string_view to_string(OpKind kind);
[[nodiscard]] Result<OpKind> op_kind_from(std::string_view word);

/// One operator. Flops and bytes are those of one microbatch at TP width 1; parameters count once.
struct OpNode {
  std::uint32_t id = 0;
  std::string name;
  OpKind kind = OpKind::kOther;
  std::uint32_t layer = 0;
  double fwd_flops = 0;
  double bwd_flops = 0;
  double param_bytes = 0;  ///< in the job's data type
  double act_bytes = 0;    ///< stashed for the backward pass
  double work_bytes = 0;   ///< scratch memory while the operator runs
  double out_bytes = 0;
};

struct OpEdge {
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  double bytes = 0;
  std::string dtype;
};

/// A model as operators in topological order. Layers are numbered 0..layer_count-1 without gaps,
/// never decrease along `nodes`, and are the only places where a pipeline may be cut.
struct Graph {
  std::string name;
  std::uint32_t micro_batch_size = 1;  ///< samples per microbatch that the numbers stand for
  std::uint32_t sequence_length = 0;
  std::uint32_t hidden_size = 0;
  std::vector<OpNode> nodes;
  std::vector<OpEdge> edges;

  [[nodiscard]] std::uint32_t layer_count() const {
    return nodes.empty() ? 0 : nodes.back().layer + 1;
  }
};

/// Requires what the comment on Graph promises; the error names the node and what is wrong.
[[nodiscard]] Result<void> validate(const Graph& graph);

/// Architecture numbers of a GPT-style decoder.
struct GptShape {
  std::string name;
  std::uint32_t layers = 0;  ///< transformer blocks; the graph has two layers more
  std::uint32_t hidden_size = 0;
  std::uint32_t heads = 0;
  std::uint32_t sequence_length = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t ffn_size = 0;  ///< 0 = 4 * hidden_size
  std::uint32_t micro_batch_size = 1;
  std::uint32_t bytes_per_element = 2;
};

/// Layer 0 is the embedding, then one layer per block (norm, QKV column-parallel linear, attention
/// core without a stored score matrix as in flash attention, projection row-parallel linear,
/// dropout, norm, MLP column- and row-parallel linears, dropout), last the final norm and the head.
/// Flops and stashed bytes follow Narayanan et al. 2021 (SC21, appendix) and Korthikanti et al.
/// 2022, section 4.
[[nodiscard]] Result<Graph> build_gpt(const GptShape& shape);

}  // namespace tapas::solver
