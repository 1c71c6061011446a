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

/// Free runs of devices, node after node of a pool.
class FreeDevices {
 public:
  FreeDevices(const Cluster& cluster, const Pool& pool)
      : pool_(pool),
        devices_(cluster.node_types[pool.node_type].devices),
        taken_(pool.nodes.size() * devices_, false),
        free_(pool.nodes.size(), devices_) {}

  /// The first free run that starts at a multiple of the width; false when there is none.
  bool take(std::uint16_t width, Position& position) {
    while (first_ < free_.size() && free_[first_] == 0) {
      ++first_;
    }
    for (std::size_t n = first_; n < free_.size(); ++n) {
      for (std::uint32_t at = 0; free_[n] >= width && at + width <= devices_; at += width) {
        const auto begin = taken_.begin() + static_cast<std::ptrdiff_t>(n * devices_ + at);
        if (std::find(begin, begin + width, true) == begin + width) {
          std::fill(begin, begin + width, true);
          free_[n] -= width;
          position = group_in(pool_, pool_.nodes[n], at / width, width);
          return true;
        }
      }
    }
    return false;
  }

 private:
  const Pool& pool_;
  std::uint32_t devices_;
  std::vector<bool> taken_;
  std::vector<std::uint32_t> free_;
  std::size_t first_ = 0;  ///< all nodes before are full
};

/// Rings of equal groups under as few switches as can be.
bool place_rings(const Cluster& cluster, const Pool& pool, std::uint16_t width,
                 std::vector<std::vector<Position>>& placement) {
  const auto replicas = static_cast<std::uint32_t>(placement.size());
  const auto stages = static_cast<std::uint32_t>(placement.front().size());
  const std::uint32_t groups = cluster.node_types[pool.node_type].devices / width;
  const std::uint32_t nodes_per_ring = (replicas + groups - 1) / groups;
  if (std::size_t{nodes_per_ring} * stages > pool.nodes.size()) {
    return false;
  }
  FreeNodes free(cluster, pool);
  for (std::uint32_t s = 0; s < stages; ++s) {
    const std::vector<NodeId> nodes = free.take(nodes_per_ring);
    for (std::uint32_t r = 0; r < replicas; ++r) {
      placement[r][s] = group_in(pool, nodes[r / groups], r % groups, width);
    }
  }
  return true;
}

}  // namespace

std::vector<std::vector<Position>> place(const Cluster& cluster, const std::vector<Pool>& pools,
                                         const std::vector<PlacedGroup>& row,
                                         std::uint32_t replicas, Layout layout) {
  const auto stages = static_cast<std::uint32_t>(row.size());
  std::vector<std::vector<Position>> placement(replicas, std::vector<Position>(stages));
  const bool alike = std::all_of(row.begin(), row.end(), [&](const PlacedGroup& group) {
    return group.pool == row.front().pool && group.width == row.front().width;
  });
  const Pool& pool = pools[row.front().pool];
  if (layout == Layout::kReplicasTogether && alike &&
      place_rings(cluster, pool, row.front().width, placement)) {
    return placement;
  }
  std::uint32_t block = replicas;
  if (layout == Layout::kRowsTogether) {
    block = 1;
  } else if (layout == Layout::kStagesTogether) {
    for (const PlacedGroup& group : row) {
      const NodeType& type = cluster.node_types[pools[group.pool].node_type];
      block = std::min(block, type.devices / group.width);
    }
  }
  std::vector<FreeDevices> free;
  for (const Pool& each : pools) {
    free.emplace_back(cluster, each);
  }
  for (std::uint32_t first = 0; first < replicas; first += block) {
    const std::uint32_t last = std::min(first + block, replicas);
    for (std::uint32_t s = 0; s < stages; ++s) {
      for (std::uint32_t r = first; r < last; ++r) {
        if (!free[row[s].pool].take(row[s].width, placement[r][s])) {
          return {};
        }
      }
    }
  }
  return placement;
}

}  // namespace tapas::solver
