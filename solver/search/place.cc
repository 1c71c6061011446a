#include "solver/search/place.h"

#include <algorithm>
#include <string>

namespace tapas::solver {
namespace {

/// The `group`-th run of devices, by number.
Position group_in(const Pool& pool, NodeId node, std::uint32_t group, std::uint16_t width) {
  const auto first = pool.device_order.begin() + static_cast<std::ptrdiff_t>(group) * width;
  Position position{node, {first, first + width}};
  std::sort(position.devices.begin(), position.devices.end());
  return position;
}

/// Free nodes of the pool by fabric domain. A domain is a run of the pool, which is sorted by them.
class FreeNodes {
 public:
  FreeNodes(const Cluster& cluster, const Pool& pool) : nodes_(pool.nodes) {
    for (const NodeId node : nodes_) {
      const Node& facts = cluster.nodes[node.value()];
      tor_.push_back(facts.pod + "/" + facts.tor);
      pod_.push_back(facts.pod);
    }
    taken_.assign(nodes_.size(), false);
  }

  /// `count` nodes out of the narrowest domain that has so many; the fullest such domain, so that
  /// room for others stays in one piece.
  std::vector<NodeId> take(std::size_t count) {
    for (const auto* domain : {&tor_, &pod_}) {
      std::size_t best = nodes_.size();
      std::size_t least = nodes_.size() + 1;
      for (std::size_t first = 0; first < nodes_.size(); first = end_of(*domain, first)) {
        const std::size_t free = free_in(first, end_of(*domain, first));
        if (free >= count && free < least) {
          best = first;
          least = free;
        }
      }
      if (best < nodes_.size()) {
        return take_from(best, count);
      }
    }
    return take_from(0, count);
  }

 private:
  [[nodiscard]] std::size_t end_of(const std::vector<std::string>& domain,
                                   std::size_t first) const {
    std::size_t end = first;
    while (end < domain.size() && domain[end] == domain[first]) {
      ++end;
    }
    return end;
  }
  [[nodiscard]] std::size_t free_in(std::size_t first, std::size_t end) const {
    return static_cast<std::size_t>(std::count(taken_.begin() + static_cast<std::ptrdiff_t>(first),
                                               taken_.begin() + static_cast<std::ptrdiff_t>(end),
                                               false));
  }
  std::vector<NodeId> take_from(std::size_t first, std::size_t count) {
    std::vector<NodeId> result;
    for (std::size_t k = first; k < nodes_.size() && result.size() < count; ++k) {
      if (!taken_[k]) {
        taken_[k] = true;
        result.push_back(nodes_[k]);
      }
    }
    return result;
  }

  const std::vector<NodeId>& nodes_;
  std::vector<std::string> tor_;
  std::vector<std::string> pod_;
  std::vector<bool> taken_;
};

}  // namespace

std::vector<std::vector<Position>> place(const Cluster& cluster, const Pool& pool,
                                         const Shape& shape, Layout layout) {
  const std::uint16_t width = shape.sharding.width;
  const std::uint32_t groups = cluster.node_types[pool.node_type].devices / width;
  std::vector<std::vector<Position>> placement(shape.replicas, std::vector<Position>(shape.stages));
  const std::uint32_t nodes_per_ring = (shape.replicas + groups - 1) / groups;
  if (layout == Layout::kReplicasTogether && nodes_per_ring * shape.stages <= pool.nodes.size()) {
    FreeNodes free(cluster, pool);
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      const std::vector<NodeId> nodes = free.take(nodes_per_ring);
      for (std::uint32_t r = 0; r < shape.replicas; ++r) {
        placement[r][s] = group_in(pool, nodes[r / groups], r % groups, width);
      }
    }
    return placement;
  }
  const std::uint32_t block =
      layout == Layout::kStagesTogether ? std::min(groups, shape.replicas) : shape.replicas;
  std::uint32_t slot = 0;
  for (std::uint32_t first = 0; first < shape.replicas; first += block) {
    const std::uint32_t last = std::min(first + block, shape.replicas);
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      for (std::uint32_t r = first; r < last; ++r, ++slot) {
        placement[r][s] = group_in(pool, pool.nodes[slot / groups], slot % groups, width);
      }
    }
  }
  return placement;
}

}  // namespace tapas::solver
