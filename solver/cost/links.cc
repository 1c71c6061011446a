#include "solver/cost/links.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tapas::solver {
namespace {

double node_nic_bytes_per_s(const NodeType& node) {
  return node.nic_bytes_per_s * static_cast<double>(node.nics);
}

/// What a ring over all channels that NCCL finds for `members` devices of a node carries inside it.
double inside_bytes_per_s(const NodeType& node, std::uint32_t members) {
  if (node.comm.shapes.empty()) {
    return node.fast_link_bytes_per_s;
  }
  const ChannelSet& ring = node.comm.shape(members).inside.ring;
  return ring.channels * ring.intra_bytes_per_s;
}
/// The same for a ring that goes on through the NICs: between its members on the node, and out.
struct Across {
  double inside_bytes_per_s = std::numeric_limits<double>::infinity();
  double nics_bytes_per_s = 0;
};
Across across(const NodeType& node, std::uint32_t members) {
  Across rates{.nics_bytes_per_s = node.fast_link_bytes_per_s};
  if (!node.comm.shapes.empty()) {
    const ChannelSet& ring = node.comm.shape(members).across.ring;
    rates.nics_bytes_per_s = ring.channels * ring.inter_bytes_per_s;
    if (members > 1) {
      rates.inside_bytes_per_s = ring.channels * ring.intra_bytes_per_s;
    }
  } else if (members > 1) {
    rates.inside_bytes_per_s = node.fast_link_bytes_per_s;
  }
  return rates;
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

}  // namespace

double nic_share_bytes_per_s(const NodeType& node) {
  return std::min(node.nic_bytes_per_s,
                  node_nic_bytes_per_s(node) / static_cast<double>(node.devices));
}

double nic_bytes_per_s(const NodeType& node, const Position& position) {
  double slowest = nic_share_bytes_per_s(node);
  if (!node.comm.nic_paths.empty()) {
    for (const std::uint16_t device : position.devices) {
      slowest = std::min(slowest, node.comm.nic_path(device).bytes_per_s);
    }
  }
  return slowest;
}

Link link_between(const Cluster& cluster, const Position& from, const Position& to,
                  const ClusterState& state) {
  const NodeType& a = cluster.type_of(from.node);
  if (from.node == to.node) {
    return {a.fast_link_latency_s, paths_bytes_per_s(a, from, to) / state.links(from.node).inside};
  }
  const NodeType& b = cluster.type_of(to.node);
  const FabricTier& tier = cluster.tier_between(from.node, to.node);
  const double rate = std::min(nic_bytes_per_s(a, from) / state.links(from.node).send,
                               nic_bytes_per_s(b, to) / state.links(to.node).receive);
  return {tier.latency_s, rate / tier.oversubscription / state.path(from.node, to.node)};
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
    const Across rates = across(node, here);
    rate = std::max(rate, std::min(rates.inside_bytes_per_s, rates.nics_bytes_per_s));
  }
  rate = std::min(rate, node_nic_bytes_per_s(node) / static_cast<double>(width));
  if (replicas * width <= node.devices) {
    rate = std::max(rate, inside_bytes_per_s(node, replicas));
  }
  const double latency = std::min({node.fast_link_latency_s, cluster.tor.latency_s,
                                   cluster.pod.latency_s, cluster.core.latency_s});
  return {replicas, latency, rate};
}

void merge_members(std::vector<RingMember>& members) {
  std::sort(members.begin(), members.end(),
            [](const RingMember& a, const RingMember& b) { return a.node < b.node; });
  std::size_t last = 0;
  for (std::size_t k = 1; k < members.size(); ++k) {
    if (members[k].node == members[last].node) {
      members[last].count += members[k].count;
      members[last].width = std::max(members[last].width, members[k].width);
    } else {
      members[++last] = members[k];
    }
  }
  members.resize(std::min(members.size(), last + 1));
}

Ring ring_over(const Cluster& cluster, std::span<const RingMember> members, std::uint32_t replicas,
               std::span<const std::uint32_t> leaving, const ClusterState& state) {
  // Out of or into the NICs of one of the nodes.
  const auto nics_bytes_per_s = [&](const RingMember& here, const FabricTier& tier) {
    const NodeType& type = cluster.type_of(here.node);
    const double share =
        node_nic_bytes_per_s(type) / static_cast<double>(leaving[here.node.value()]);
    return std::min(across(type, here.count).nics_bytes_per_s, share / tier.oversubscription);
  };
  Ring ring{replicas, 0, std::numeric_limits<double>::infinity(), 0};
  double sum = 0;
  for (std::size_t k = 0; k < members.size(); ++k) {
    const RingMember& here = members[k];
    const NodeType& type = cluster.type_of(here.node);
    const NodeLinks links = state.links(here.node);
    ring.latency_s = std::max(ring.latency_s, type.fast_link_latency_s);
    if (members.size() == 1) {
      ring.bytes_per_s = ring.mean_bytes_per_s =
          inside_bytes_per_s(type, here.count) / links.inside;
      return ring;
    }
    const RingMember& next = members[(k + 1) % members.size()];
    const FabricTier& tier = cluster.tier_between(here.node, next.node);
    const double hop = std::min(nics_bytes_per_s(here, tier) / links.send,
                                nics_bytes_per_s(next, tier) / state.links(next.node).receive);
    const double rate = std::min(hop / state.path(here.node, next.node),
                                 across(type, here.count).inside_bytes_per_s / links.inside);
    ring.bytes_per_s = std::min(ring.bytes_per_s, rate);
    sum += 1 / rate;
    ring.latency_s = std::max(ring.latency_s, tier.latency_s);
  }
  ring.mean_bytes_per_s = static_cast<double>(members.size()) / sum;
  return ring;
}

std::vector<Ring> replica_rings(const Cluster& cluster, const Plan& plan,
                                const ClusterState& state) {
  const std::uint32_t stages = plan.stages();
  std::vector<std::vector<RingMember>> members(stages);
  std::vector<std::uint32_t> leaving(cluster.nodes.size(), 0);
  for (std::uint32_t s = 0; s < stages; ++s) {
    for (const auto& row : plan.placement) {
      members[s].push_back({row[s].node, 1, static_cast<std::uint32_t>(row[s].devices.size())});
    }
    merge_members(members[s]);
    if (members[s].size() > 1) {
      for (const RingMember& here : members[s]) {
        leaving[here.node.value()] += here.width;
      }
    }
  }
  std::vector<Ring> rings;
  rings.reserve(stages);
  for (const auto& of_stage : members) {
    rings.push_back(ring_over(cluster, of_stage, plan.replicas(), leaving, state));
  }
  return rings;
}

}  // namespace tapas::solver
