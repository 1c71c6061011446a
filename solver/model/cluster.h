#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "solver/model/comm.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::solver {

/// What a kind of accelerator reaches.
struct DeviceType {
  std::string name;
  double peak_flops = 0;  ///< dense, in the job's data type
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  /// Share of peak that large matrix products reach, and the flops per device and kernel at which
  /// half of that is reached: efficiency = best * flops / (flops + half_flops).
  double matmul_efficiency = 0;
  double matmul_half_flops = 0;
  double attention_efficiency = 0;
  double memory_efficiency = 1;  ///< share of memory_bytes_per_s that element-wise passes reach
  /// Time of the host to launch one operator: a layer takes at least that times its operators.
  double operator_launch_s = 0;
  /// What a collective costs beyond its transfer when compute waits for it: launch, rendezvous.
  double collective_launch_s = 0;
  std::string collective_library;  ///< "nccl", "hccl"
};

/// What matters of a server's inside, as read from an NCCL topo.xml or given in the cluster file.
struct NodeType {
  std::string name;
  std::uint32_t device_type = 0;  ///< index into Cluster::device_types
  std::uint32_t devices = 0;
  double fast_link_bytes_per_s = 0;  ///< per device, one way, inside the NVLink/HCCS domain
  double fast_link_latency_s = 0;
  double nic_bytes_per_s = 0;  ///< one NIC, one way
  std::uint32_t nics = 0;      ///< that serve devices
  std::string topo_file;       ///< where this came from; empty = given directly
  CommTable comm = {};         ///< filled by the loader; may be empty
};
/// The node type's table, or the simple one when it has none.
[[nodiscard]] CommTable comm_table(const NodeType& type);

struct Node {
  std::string name;
  std::uint32_t type = 0;  ///< index into Cluster::node_types
  std::string tor;
  std::string pod;
  bool spare = false;
};

/// One tier of the fabric: node pairs under one ToR, under one pod, or across pods.
struct FabricTier {
  std::string name;  ///< "tor", "pod" or "core"
  double latency_s = 0;
  double oversubscription = 1;  ///< >= 1, divides the NIC bandwidth
};

struct Cluster {
  std::string name;
  std::vector<DeviceType> device_types;
  std::vector<NodeType> node_types;
  std::vector<Node> nodes;
  FabricTier tor, pod, core;

  [[nodiscard]] const NodeType& type_of(NodeId node) const {
    return node_types[nodes[node.value()].type];
  }
  [[nodiscard]] const DeviceType& device_type_of(NodeId node) const {
    return device_types[type_of(node).device_type];
  }
  /// All device slots, spares included; RankIds run from 0 to this minus one.
  [[nodiscard]] std::uint32_t device_count() const;
  [[nodiscard]] RankId rank_of(NodeId node, std::uint32_t device) const;
  /// Requires rank < device_count().
  [[nodiscard]] NodeId node_of(RankId rank) const;
  [[nodiscard]] std::uint32_t device_of(RankId rank) const;
  [[nodiscard]] std::optional<NodeId> find(std::string_view node_name) const;
  /// The tier that traffic between two different nodes crosses.
  [[nodiscard]] const FabricTier& tier_between(NodeId a, NodeId b) const;
};

[[nodiscard]] Result<void> validate(const Cluster& cluster);

}  // namespace tapas::solver
