#include "solver/model/graph.h"

#include <array>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace tapas::solver {

namespace {

constexpr std::array<std::pair<OpKind, std::string_view>, 8> kOpKinds = {{
    {OpKind::kEmbedding, "embedding"},
    {OpKind::kMoe, "moe"},
    {OpKind::kColumnParallelLinear, "column_parallel_linear"},
    {OpKind::kRowParallelLinear, "row_parallel_linear"},
    {OpKind::kAttention, "attention"},
    {OpKind::kNorm, "norm"},
    {OpKind::kHead, "head"},
    {OpKind::kOther, "other"},
}};

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

std::string_view to_string(OpKind kind) {
  for (const auto& [known, word] : kOpKinds) {
    if (known == kind) {
      return word;
    }
  }
  return "unknown";
}

Result<OpKind> op_kind_from(std::string_view word) {
  for (const auto& [kind, known] : kOpKinds) {
    if (known == word) {
      return kind;
    }
  }
  std::string words;
  for (const auto& item : kOpKinds) {
    words += words.empty() ? "" : ", ";
    words += item.second;
  }
  return fail(ErrorCode::kInvalid, "unknown operator kind \"{}\"; allowed: {}", word, words);
}

Result<void> validate(const Graph& graph) {
  if (graph.name.empty()) {
    return fail(ErrorCode::kInvalid, "the graph has no name");
  }
  if (graph.nodes.empty()) {
    return fail(ErrorCode::kInvalid, "graph {} has no nodes", graph.name);
  }
  if (graph.micro_batch_size == 0) {
    return fail(ErrorCode::kInvalid, "graph {}: micro_batch_size must be at least 1", graph.name);
  }
  std::unordered_map<std::uint32_t, std::size_t> position;
  std::uint32_t layer = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const OpNode& node = graph.nodes[i];
    const auto complain = [&](const std::string& what) {
      return fail(ErrorCode::kInvalid, "graph {}, node {} \"{}\": {}", graph.name, node.id,
                  node.name, what);
    };
    if (!position.emplace(node.id, i).second) {
      return complain("its id is used by another node too");
    }
    if (i == 0 ? node.layer != 0 : (node.layer != layer && node.layer != layer + 1)) {
      return complain(fmt::format(
          "layer {} follows layer {}; layers start at 0, never decrease and have no gaps",
          node.layer, i == 0 ? std::string("nothing") : std::to_string(layer)));
    }
    layer = node.layer;
    if (!is_amount(node.fwd_flops) || !is_amount(node.bwd_flops) || !is_amount(node.param_bytes) ||
        !is_amount(node.act_bytes) || !is_amount(node.work_bytes) || !is_amount(node.out_bytes)) {
      return complain("flops and bytes must be finite and not negative");
    }
  }
  for (const OpEdge& edge : graph.edges) {
    const auto src = position.find(edge.src);
    const auto dst = position.find(edge.dst);
    if (src == position.end() || dst == position.end()) {
      return fail(ErrorCode::kInvalid, "graph {}: edge {} -> {} names a node that does not exist",
                  graph.name, edge.src, edge.dst);
    }
    if (src->second >= dst->second) {
      return fail(ErrorCode::kInvalid,
                  "graph {}: edge {} -> {} goes backwards; nodes must be in topological order",
                  graph.name, edge.src, edge.dst);
    }
    if (!is_amount(edge.bytes)) {
      return fail(ErrorCode::kInvalid,
                  "graph {}: edge {} -> {}: bytes must be finite, not negative", graph.name,
                  edge.src, edge.dst);
    }
  }
  return {};
}

}  // namespace tapas::solver
