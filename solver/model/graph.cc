#include "solver/model/graph.h"

#include <algorithm>
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
bool is_amount(const std::optional<double>& value) { return !value || is_amount(*value); }

std::string problem_of(const std::vector<MeasuredOp>& measured) {
  for (std::size_t k = 0; k < measured.size(); ++k) {
    const MeasuredOp& m = measured[k];
    if (m.device.empty()) {
      return "a measured entry names no device";
    }
    if (m.micro_batch_size == 0 || m.tp_width == 0) {
      return "a measured entry's micro_batch_size and tp_width must be at least 1";
    }
    if (!is_amount(m.forward_s) || !is_amount(m.backward_s) || !is_amount(m.forward_comm_s) ||
        !is_amount(m.backward_comm_s) || !is_amount(m.param_bytes) || !is_amount(m.act_bytes) ||
        !is_amount(m.work_bytes)) {
      return "measured seconds and bytes must be finite and not negative";
    }
    const auto same = [&](const MeasuredOp& other) {
      return other.device == m.device && other.micro_batch_size == m.micro_batch_size &&
             other.tp_width == m.tp_width;
    };
    if (std::any_of(measured.begin(), measured.begin() + static_cast<std::ptrdiff_t>(k), same)) {
      return fmt::format("measured twice on {} at TP {}, micro-batch size {}", m.device, m.tp_width,
                         m.micro_batch_size);
    }
  }
  return "";
}

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

NodePlaces::NodePlaces(const Graph& graph) {
  by_id_.reserve(graph.nodes.size());
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    by_id_.emplace_back(graph.nodes[k].id, k);
  }
  if (!std::is_sorted(by_id_.begin(), by_id_.end())) {
    std::sort(by_id_.begin(), by_id_.end());
  }
}

std::size_t NodePlaces::operator[](std::uint32_t id) const {
  // Ids mostly have no gaps.
  const std::size_t guess = id - by_id_.front().first;
  if (guess < by_id_.size() && by_id_[guess].first == id) {
    return by_id_[guess].second;
  }
  return std::lower_bound(by_id_.begin(), by_id_.end(), std::pair(id, std::size_t{0}))->second;
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
        !is_amount(node.act_bytes) || !is_amount(node.work_bytes) || !is_amount(node.out_bytes) ||
        !is_amount(node.fwd_moved_bytes) || !is_amount(node.bwd_moved_bytes)) {
      return complain("flops and bytes must be finite and not negative");
    }
    if (std::string problem = problem_of(node.measured); !problem.empty()) {
      return complain(problem);
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

const MeasuredOp* find_measured(const OpNode& op, std::string_view device,
                                std::uint32_t micro_batch_size, std::uint32_t width) {
  for (const MeasuredOp& m : op.measured) {
    if (m.device == device && m.micro_batch_size == micro_batch_size && m.tp_width == width) {
      return &m;
    }
  }
  return nullptr;
}

Result<void> check_measured(const Graph& graph, std::string_view device, std::uint32_t width) {
  for (const OpNode& op : graph.nodes) {
    if (op.measured.empty() ||
        find_measured(op, device, graph.micro_batch_size, width) != nullptr) {
      continue;
    }
    const bool elsewhere = std::none_of(op.measured.begin(), op.measured.end(),
                                        [&](const MeasuredOp& m) { return m.device == device; });
    if (elsewhere && op.fwd_flops > 0) {
      continue;
    }
    return fail(ErrorCode::kInfeasible,
                "no measured time of layer {} (\"{}\") at TP {} on {} for micro-batch size {}",
                op.layer, op.name, width, device, graph.micro_batch_size);
  }
  return {};
}

}  // namespace tapas::solver
