#include "solver/cost/links.h"

#include <algorithm>
#include <limits>
#include <map>

namespace tapas::solver {
namespace {

double node_nic_bytes_per_s(const NodeType& node) {
  return node.nic_bytes_per_s * static_cast<double>(node.nics);
}

}  // namespace

double nic_share_bytes_per_s(const NodeType& node) {
  return std::min(node.nic_bytes_per_s,
                  node_nic_bytes_per_s(node) / static_cast<double>(node.devices));
}

Link link_between(const Cluster& cluster, const Position& from, const Position& to) {
  const NodeType& a = cluster.type_of(from.node);
  if (from.node == to.node) {
    return link_inside(a);
  }
  const NodeType& b = cluster.type_of(to.node);
  const FabricTier& tier = cluster.tier_between(from.node, to.node);
  return {tier.latency_s,
          std::min(nic_share_bytes_per_s(a), nic_share_bytes_per_s(b)) / tier.oversubscription};
}

Link link_inside(const NodeType& node) {
  return {node.fast_link_latency_s, node.fast_link_bytes_per_s};
}

Link best_link_out(const Cluster& cluster, std::uint32_t node_type) {
  return {std::min({cluster.tor.latency_s, cluster.pod.latency_s, cluster.core.latency_s}),
          nic_share_bytes_per_s(cluster.node_types[node_type])};
}

Ring best_ring(const Cluster& cluster, std::uint32_t node_type, std::uint32_t width,
               std::uint32_t replicas) {
  const NodeType& node = cluster.node_types[node_type];
  if (replicas * width <= node.devices) {
    return {replicas, node.fast_link_latency_s, node.fast_link_bytes_per_s};
  }
  const double latency = std::min({node.fast_link_latency_s, cluster.tor.latency_s,
                                   cluster.pod.latency_s, cluster.core.latency_s});
  return {replicas, latency,
          std::min(node.fast_link_bytes_per_s,
                   node_nic_bytes_per_s(node) / static_cast<double>(width))};
}

std::vector<Ring> replica_rings(const Cluster& cluster, const Plan& plan) {
  const std::uint32_t stages = plan.stages();
  std::vector<std::vector<NodeId>> nodes_of_stage(stages);
  std::map<NodeId, std::uint32_t> rings_leaving;
  for (std::uint32_t s = 0; s < stages; ++s) {
    auto& nodes = nodes_of_stage[s];
    for (const auto& row : plan.placement) {
      nodes.push_back(row[s].node);
    }
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    if (nodes.size() > 1) {
      const auto width = static_cast<std::uint32_t>(plan.placement.front()[s].devices.size());
      for (const NodeId node : nodes) {
        rings_leaving[node] += width;
      }
    }
  }
  std::vector<Ring> rings(stages);
  for (std::uint32_t s = 0; s < stages; ++s) {
    const auto& nodes = nodes_of_stage[s];
    Ring ring{plan.replicas(), 0, std::numeric_limits<double>::infinity()};
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      const NodeType& type = cluster.type_of(nodes[k]);
      ring.bytes_per_s = std::min(ring.bytes_per_s, type.fast_link_bytes_per_s);
      ring.latency_s = std::max(ring.latency_s, type.fast_link_latency_s);
      if (nodes.size() > 1) {
        const FabricTier& tier = cluster.tier_between(nodes[k], nodes[(k + 1) % nodes.size()]);
        const double share = node_nic_bytes_per_s(type) /
                             static_cast<double>(rings_leaving[nodes[k]]) / tier.oversubscription;
        ring.bytes_per_s = std::min(ring.bytes_per_s, share);
        ring.latency_s = std::max(ring.latency_s, tier.latency_s);
      }
    }
    rings[s] = ring;
  }
  return rings;
}

}  // namespace tapas::solver
