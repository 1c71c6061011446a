#include "solver/profile/layers.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tapas::solver::profile {
namespace {

bool costs(const OpNode& op) {
  return op.param_bytes > 0 || op.fwd_flops > 0 || op.bwd_flops > 0 ||
         std::any_of(op.measured.begin(), op.measured.end(),
                     [](const MeasuredOp& m) { return m.forward_s > 0 || m.backward_s > 0; });
}

enum class Mark : std::uint8_t { kNew, kOpen, kDone };

/// Depth first from the nodes that nobody needs, needed nodes first.
class Order {
 public:
  explicit Order(const Graph& graph)
      : graph_(graph), needs_(graph.nodes.size()), mark_(graph.nodes.size(), Mark::kNew) {}

  Result<std::vector<std::size_t>> run() {
    std::unordered_map<std::uint32_t, std::size_t> index;
    for (std::size_t k = 0; k < graph_.nodes.size(); ++k) {
      if (!index.emplace(graph_.nodes[k].id, k).second) {
        return fail(ErrorCode::kInvalid, "graph {}: two nodes have the id {}", graph_.name,
                    graph_.nodes[k].id);
      }
    }
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (const OpEdge& edge : graph_.edges) {
      const auto src = index.find(edge.src);
      const auto dst = index.find(edge.dst);
      if (src == index.end() || dst == index.end()) {
        return fail(ErrorCode::kInvalid, "graph {}: edge {} -> {} names a node that does not exist",
                    graph_.name, edge.src, edge.dst);
      }
      needs_[dst->second].push_back(src->second);
      needed[src->second] = true;
    }
    for (std::size_t k = 0; k < needed.size(); ++k) {
      if (!needed[k]) {
        if (auto ok = visit(k); !ok) {
          return tl::unexpected(ok.error());
        }
      }
    }
    if (const auto left = std::find(mark_.begin(), mark_.end(), Mark::kNew); left != mark_.end()) {
      return cycle_at(static_cast<std::size_t>(left - mark_.begin()));
    }
    return std::move(order_);
  }

 private:
  tl::unexpected<Error> cycle_at(std::size_t k) const {
    return fail(ErrorCode::kInvalid, "graph {}: node {} \"{}\" needs its own output (a cycle)",
                graph_.name, graph_.nodes[k].id, graph_.nodes[k].name);
  }

  Result<void> visit(std::size_t root) {
    std::vector<std::pair<std::size_t, std::size_t>> stack = {{root, 0}};
    mark_[root] = Mark::kOpen;
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == needs_[node].size()) {
        mark_[node] = Mark::kDone;
        order_.push_back(node);
        stack.pop_back();
        continue;
      }
      const std::size_t need = needs_[node][next++];
      if (mark_[need] == Mark::kOpen) {
        return cycle_at(need);
      }
      if (mark_[need] == Mark::kNew) {
        mark_[need] = Mark::kOpen;
        stack.emplace_back(need, 0);
      }
    }
    return {};
  }

  const Graph& graph_;
  std::vector<std::vector<std::size_t>> needs_;
  std::vector<Mark> mark_;
  std::vector<std::size_t> order_;
};

}  // namespace

Result<void> arrange(Graph& graph) {
  const auto order = Order(graph).run();
  if (!order) {
    return tl::unexpected(order.error());
  }
  std::vector<OpNode> nodes;
  nodes.reserve(graph.nodes.size());
  bool started = false;
  std::uint32_t layer = 0;
  for (const std::size_t k : *order) {
    OpNode& op = graph.nodes[k];
    if (costs(op)) {
      layer += started ? 1 : 0;
      started = true;
    }
    op.layer = layer;
    nodes.push_back(std::move(op));
  }
  graph.nodes = std::move(nodes);
  return {};
}

}  // namespace tapas::solver::profile
