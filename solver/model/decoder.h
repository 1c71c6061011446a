#pragma once

#include "base/result.h"
#include "solver/model/graph.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tapas::solver {

/// What a block keeps of its attention scores, heads * sequence^2 numbers per sample.
enum class AttentionScores : std::uint8_t {
  kFlash,       ///< never in memory as a whole: one statistic per row and head is kept
  kStored,      ///< softmax (and with dropout its mask and output) kept for the backward pass
  kRecomputed,  ///< made again in the backward pass: "selective recomputation"
};
std::string_view to_string(AttentionScores scores);
[[nodiscard]] Result<AttentionScores> attention_scores_from(std::string_view word);

/// Feed-forward networks of which each token takes a few. `count` 0 = the block has a plain one.
struct Experts {
  std::uint32_t count = 0;
  std::uint32_t per_token = 0;
  std::uint32_t ffn_size = 0;         ///< of one expert
  std::uint32_t shared_ffn_size = 0;  ///< of the expert that every token takes; 0 = none
  std::uint32_t dense_layers = 0;     ///< first blocks, which have a plain network
};

/// Multi-head latent attention: queries, keys and values pass through narrow projections.
/// `kv_rank` 0 = the block has plain attention.
struct LatentAttention {
  std::uint32_t query_rank = 0;  ///< 0 = queries are projected at once
  std::uint32_t kv_rank = 0;
  std::uint32_t rotary_size = 0;  ///< positions of a head: beside head_size, keys share one
};

/// Architecture numbers of a decoder. The defaults are GPT-3's: layer norms, biases, GELU, learned
/// positions, dropout, one matrix for embedding and head.
struct DecoderShape {
  std::string name;
  std::uint32_t layers = 0;  ///< transformer blocks; the graph has two layers more
  std::uint32_t hidden_size = 0;
  std::uint32_t heads = 0;
  std::uint32_t sequence_length = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t ffn_size = 0;  ///< 0 = 4 * hidden_size
  std::uint32_t micro_batch_size = 1;
  std::uint32_t bytes_per_element = 2;
  std::uint32_t kv_heads = 0;   ///< 0 = heads; fewer: grouped-query attention
  std::uint32_t head_size = 0;  ///< 0 = hidden_size / heads
  bool gated_ffn = false;       ///< SwiGLU: three matrices instead of two
  bool rms_norm = false;        ///< one vector per norm instead of two
  bool rotary = false;          ///< rotary positions instead of a learned table
  bool biases = true;
  bool dropout = true;
  bool tied_head = true;  ///< the head's matrix is the embedding's: counted once
  AttentionScores scores = AttentionScores::kFlash;
  Experts experts = {};
  LatentAttention latent = {};
};

/// Requires sensible sizes that divide as they must; the error names the model and the number.
[[nodiscard]] Result<void> validate(const DecoderShape& shape);

/// Layer 0 is the embedding, then one layer per block, last the final norm and the head. Operators
/// and their numbers are listed in docs/formats.md, "Models by their architecture numbers".
[[nodiscard]] Result<Graph> build_decoder(const DecoderShape& shape);

struct ParameterCount {
  double total = 0;   ///< as published: a tied matrix once
  double active = 0;  ///< those that one token meets
};
[[nodiscard]] ParameterCount count_parameters(const DecoderShape& shape);

}  // namespace tapas::solver
