#include "solver/cost/links.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tapas::solver {
namespace {

double node_nic_bytes_per_s(const NodeType& node) {
  return node.nic_bytes_per_s * static_cast<double>(node.nics);
}

/// What a ring over all channels that NCCL finds for `members` devices of a node carries, inside it
/// or on through the NICs.
double inside_bytes_per_s(const NodeType& node, std::uint32_t members) {
  if (node.comm.shapes.empty()) {
    return node.fast_link_bytes_per_s;
  }
  const ChannelSet& ring = node.comm.shape(members).inside.ring;
  return ring.channels * ring.intra_bytes_per_s;
}
double across_bytes_per_s(const NodeType& node, std::uint32_t members) {
  if (node.comm.shapes.empty()) {
    return node.fast_link_bytes_per_s;
  }
  const ChannelSet& ring = node.comm.shape(members).across.ring;
  return ring.channels * (members > 1 ? std::min(ring.intra_bytes_per_s, ring.inter_bytes_per_s)
                                      : ring.inter_bytes_per_s);
}

/// The slowest pair of devices of two groups in one node.
double paths_bytes_per_s(const NodeType& node, const Position& from, const Position& to) {
  double slowest = node.fast_link_bytes_per_s;
  if (!node.comm.paths.empty()) {
    for (std::size_t k = 0; k < std::max(from.devices.size(), to.devices.size()); ++k) {
      const DevicePath path =
          node.comm.path(from.devices[k % from.devices.size()], to.devices[k % to.devices.size()]);
      if (path.type != PathType::kLoc) {
        slowest = std::min(slowest, path.bytes_per_s);
      }
    }
  }
  return slowest;
}
double nic_paths_bytes_per_s(const NodeType& node, const Position& position) {
  double slowest = nic_share_bytes_per_s(node);
  if (!node.comm.nic_paths.empty()) {
    for (const std::uint16_t device : position.devices) {
      slowest = std::min(slowest, node.comm.nic_path(device).bytes_per_s);
    }
  }
  return slowest;
}

}  // namespace

double nic_share_bytes_per_s(const NodeType& node) {
  return std::min(node.nic_bytes_per_s,
                  node_nic_bytes_per_s(node) / static_cast<double>(node.devices));
}

Link link_between(const Cluster& cluster, const Position& from, const Position& to) {
  const NodeType& a = cluster.type_of(from.node);
  if (from.node == to.node) {
    return {a.fast_link_latency_s, paths_bytes_per_s(a, from, to)};
  }
  const NodeType& b = cluster.type_of(to.node);
  const FabricTier& tier = cluster.tier_between(from.node, to.node);
  return {tier.latency_s, std::min(nic_paths_bytes_per_s(a, from), nic_paths_bytes_per_s(b, to)) /
                              tier.oversubscription};
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
  double rate = 0;
  for (std::uint32_t here = 1; here <= std::min(replicas, node.devices / width); ++here) {
    rate = std::max(rate, across_bytes_per_s(node, here));
  }
  rate = std::min(rate, node_nic_bytes_per_s(node) / static_cast<double>(width));
  if (replicas * width <= node.devices) {
    rate = std::max(rate, inside_bytes_per_s(node, replicas));
  }
  const double latency = std::min({node.fast_link_latency_s, cluster.tor.latency_s,
                                   cluster.pod.latency_s, cluster.core.latency_s});
  return {replicas, latency, rate};
}

std::vector<Ring> replica_rings(const Cluster& cluster, const Plan& plan) {
  struct Members {
    NodeId node;
    std::uint32_t count = 0;  ///< of each ring of the stage
  };
  const std::uint32_t stages = plan.stages();
  std::vector<std::vector<Members>> members_of(stages);
  std::vector<std::uint32_t> rings_leaving(cluster.nodes.size(), 0);
  std::vector<NodeId> nodes;
  for (std::uint32_t s = 0; s < stages; ++s) {
    nodes.clear();
    for (const auto& row : plan.placement) {
      nodes.push_back(row[s].node);
    }
    std::sort(nodes.begin(), nodes.end());
    auto& members = members_of[s];
    for (const NodeId node : nodes) {
      if (members.empty() || members.back().node != node) {
        members.push_back({node, 0});
      }
      ++members.back().count;
    }
    if (members.size() > 1) {
      const auto width = static_cast<std::uint32_t>(plan.placement.front()[s].devices.size());
      for (const Members& here : members) {
        rings_leaving[here.node.value()] += width;
      }
    }
  }
  std::vector<Ring> rings(stages);
  for (std::uint32_t s = 0; s < stages; ++s) {
    const auto& members = members_of[s];
    Ring ring{plan.replicas(), 0, std::numeric_limits<double>::infinity()};
    for (std::size_t k = 0; k < members.size(); ++k) {
      const auto& [node, count] = members[k];
      const NodeType& type = cluster.type_of(node);
      ring.latency_s = std::max(ring.latency_s, type.fast_link_latency_s);
      if (members.size() == 1) {
        ring.bytes_per_s = inside_bytes_per_s(type, count);
        break;
      }
      const FabricTier& tier = cluster.tier_between(node, members[(k + 1) % members.size()].node);
      const double share =
          node_nic_bytes_per_s(type) / static_cast<double>(rings_leaving[node.value()]);
      ring.bytes_per_s = std::min(
          {ring.bytes_per_s, across_bytes_per_s(type, count), share / tier.oversubscription});
      ring.latency_s = std::max(ring.latency_s, tier.latency_s);
    }
    rings[s] = ring;
  }
  return rings;
}

}  // namespace tapas::solver
