#pragma once

#include "solver/model/cluster.h"
#include "solver/model/cluster_state.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tapas::solver {

/// One way between two TP groups, as one device of the group sees it.
struct Link {
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// The ring over which the replicas of one stage reduce their gradients, as one device sees it.
struct Ring {
  std::uint32_t members = 1;
  double latency_s = 0;  ///< of one hop
  double bytes_per_s = 0;
  /// By the mean time of the hops instead of the longest: tells apart rings that have more and
  /// fewer slow hops.
  double mean_bytes_per_s = 0;

  friend bool operator==(const Ring&, const Ring&) = default;
};

/// What one device gets of its node's NICs when all devices send: never more than one NIC.
[[nodiscard]] double nic_share_bytes_per_s(const NodeType& node);

/// Between two positions, as the slowest pair of devices sees it: the path inside a node, else the
/// NIC share, or the path to the NIC, of the slower end over the tier's oversubscription. Never
/// better than the node's fast link and NIC share. Measured slowdowns divide the rates: of sending
/// at one end, receiving at the other and the path between them, or of what is inside the node.
[[nodiscard]] Link link_between(const Cluster& cluster, const Position& from, const Position& to,
                                const ClusterState& state = {});

[[nodiscard]] Link link_inside(const NodeType& node);

/// No link between two nodes of this type is better, and no ring of groups of `width` devices.
[[nodiscard]] Link best_link_out(const Cluster& cluster, std::uint32_t node_type);
[[nodiscard]] Ring best_ring(const Cluster& cluster, std::uint32_t node_type, std::uint32_t width,
                             std::uint32_t replicas);

/// Members of the rings of one stage that share a node.
struct RingMember {
  NodeId node;
  std::uint32_t count = 1;  ///< of each ring
  std::uint32_t width = 1;  ///< devices of a group: rings at once
};
/// Sorts by node and makes one of those on the same node.
void merge_members(std::vector<RingMember>& members);

/// From each node to the next in the cluster's order and from the last to the first, at the rate of
/// the slowest hop in the measured state. `leaving` has, per node, the rings of all TP ranks and
/// stages that leave it and share its NICs; each device of a group narrower than the other
/// replicas' serves its rings one after the other.
[[nodiscard]] Ring ring_over(const Cluster& cluster, std::span<const RingMember> members,
                             std::uint32_t replicas, std::span<const std::uint32_t> leaving,
                             const ClusterState& state);

/// One ring per stage.
[[nodiscard]] std::vector<Ring> replica_rings(const Cluster& cluster, const Plan& plan,
                                              const ClusterState& state = {});

/// What one device of the position gets of the NICs: the path to them, at most the NIC share.
[[nodiscard]] double nic_bytes_per_s(const NodeType& node, const Position& position);

}  // namespace tapas::solver
