#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "solver/model/cluster.h"

#include <vector>

namespace tapas::solver {

/// How many times as long transfers of one node take, by direction; latencies stay as they are.
struct NodeLinks {
  double send = 1;     ///< out of its NICs
  double receive = 1;  ///< into its NICs
  double inside = 1;   ///< between its devices: TP collectives, stages that share the node

  friend bool operator==(const NodeLinks&, const NodeLinks&) = default;
};

/// Transfers from one node to another that take longer than the NICs explain: a switch port, a
/// cable of the fabric, flows that share a path. The other direction is another entry.
struct PathSlowdown {
  NodeId from;
  NodeId to;
  double factor = 1;

  friend bool operator==(const PathSlowdown&, const PathSlowdown&) = default;
};

/// Measured deviation of the cluster from its description. Slowdown: 1.0 = healthy, 1.6 = takes
/// 1.6 times as long.
struct ClusterState {
  std::vector<double> device_slowdown;  ///< per RankId; empty = all healthy
  std::vector<bool> drained;            ///< per NodeId; empty = none
  std::vector<NodeLinks> node_links;    ///< per NodeId; empty = all healthy
  std::vector<PathSlowdown> paths;      ///< a directed pair at most once

  [[nodiscard]] double slowdown(RankId rank) const {
    return rank.value() < device_slowdown.size() ? device_slowdown[rank.value()] : 1.0;
  }
  [[nodiscard]] bool is_drained(NodeId node) const {
    return node.value() < drained.size() && drained[node.value()];
  }
  [[nodiscard]] NodeLinks links(NodeId node) const {
    return node.value() < node_links.size() ? node_links[node.value()] : NodeLinks{};
  }
  /// Of the way between two nodes beyond their NICs.
  [[nodiscard]] double path(NodeId from, NodeId to) const {
    for (const PathSlowdown& known : paths) {
      if (known.from == from && known.to == to) {
        return known.factor;
      }
    }
    return 1.0;
  }
};

/// Every list that is not empty has an entry per device or node of the cluster, factors are
/// positive and finite, paths join two nodes of the cluster, each direction once.
[[nodiscard]] Result<void> validate(const Cluster& cluster, const ClusterState& state);

}  // namespace tapas::solver
