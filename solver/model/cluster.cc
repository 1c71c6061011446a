#include "solver/model/cluster.h"

#include <cmath>
#include <map>
#include <set>

namespace tapas::solver {

namespace {

constexpr std::uint32_t kMaxDevicesPerNode = 1024;
constexpr std::uint32_t kMaxDevices = 1U << 20U;

bool positive(double value) { return std::isfinite(value) && value > 0; }
bool not_negative(double value) { return std::isfinite(value) && value >= 0; }
bool share(double value) { return value > 0 && value <= 1; }

Result<void> check_device_type(const DeviceType& type) {
  if (!valid_name(type.name)) {
    return fail(ErrorCode::kInvalid, "device type name \"{}\" is not a valid name", type.name);
  }
  if (!positive(type.peak_flops) || !positive(type.memory_bytes) ||
      !positive(type.memory_bytes_per_s)) {
    return fail(ErrorCode::kInvalid,
                "device type {}: peak_flops, memory_bytes and memory_bytes_per_s must be positive",
                type.name);
  }
  if (!share(type.matmul_efficiency) || !share(type.attention_efficiency) ||
      !share(type.memory_efficiency)) {
    return fail(ErrorCode::kInvalid, "device type {}: efficiencies must be above 0, at most 1",
                type.name);
  }
  if (!not_negative(type.matmul_half_flops) || !not_negative(type.operator_launch_s) ||
      !not_negative(type.collective_launch_s)) {
    return fail(ErrorCode::kInvalid,
                "device type {}: matmul_half_flops, operator_launch_s and collective_launch_s must "
                "not be negative",
                type.name);
  }
  return {};
}

Result<void> check_node_type(const Cluster& cluster, const NodeType& type) {
  if (!valid_name(type.name)) {
    return fail(ErrorCode::kInvalid, "node type name \"{}\" is not a valid name", type.name);
  }
  if (type.device_type >= cluster.device_types.size()) {
    return fail(ErrorCode::kInvalid, "node type {}: its device type does not exist", type.name);
  }
  if (type.devices == 0 || type.devices > kMaxDevicesPerNode) {
    return fail(ErrorCode::kInvalid, "node type {}: {} devices; 1 to {} are possible", type.name,
                type.devices, kMaxDevicesPerNode);
  }
  if (type.devices > 1 && !positive(type.fast_link_bytes_per_s)) {
    return fail(ErrorCode::kInvalid, "node type {}: fast_link_bytes_per_s must be positive",
                type.name);
  }
  if (!std::isfinite(type.fast_link_latency_s) || type.fast_link_latency_s < 0) {
    return fail(ErrorCode::kInvalid, "node type {}: fast_link_latency_s must not be negative",
                type.name);
  }
  if (cluster.nodes.size() > 1 && (type.nics == 0 || !positive(type.nic_bytes_per_s))) {
    return fail(ErrorCode::kInvalid,
                "node type {}: {} NICs of {} bytes/s cannot connect a cluster of {} nodes",
                type.name, type.nics, type.nic_bytes_per_s, cluster.nodes.size());
  }
  return {};
}

Result<void> check_nodes(const Cluster& cluster) {
  std::set<std::string_view> names;
  std::map<std::string_view, std::string_view> pod_of_tor;
  std::uint64_t devices = 0;
  for (const Node& node : cluster.nodes) {
    if (!valid_name(node.name)) {
      return fail(ErrorCode::kInvalid, "node name \"{}\" is not a valid name", node.name);
    }
    if (!names.insert(node.name).second) {
      return fail(ErrorCode::kInvalid, "node {} is listed twice", node.name);
    }
    if (node.type >= cluster.node_types.size()) {
      return fail(ErrorCode::kInvalid, "node {}: its node type does not exist", node.name);
    }
    const auto tor = pod_of_tor.emplace(node.tor, node.pod).first;
    if (tor->second != node.pod) {
      return fail(ErrorCode::kInvalid, "node {}: ToR \"{}\" is in pod \"{}\" and in pod \"{}\"",
                  node.name, node.tor, tor->second, node.pod);
    }
    devices += cluster.node_types[node.type].devices;
  }
  if (devices > kMaxDevices) {
    return fail(ErrorCode::kInvalid, "cluster {} has {} devices; at most {} are possible",
                cluster.name, devices, kMaxDevices);
  }
  return {};
}

}  // namespace

CommTable comm_table(const NodeType& type) {
  return type.comm.shapes.empty() ? simple_comm_table(type.devices, type.fast_link_bytes_per_s,
                                                      type.nics, type.nic_bytes_per_s)
                                  : type.comm;
}

std::uint32_t Cluster::device_count() const {
  return nodes.empty() ? 0
                       : rank_of(NodeId(static_cast<std::uint32_t>(nodes.size() - 1)), 0).value() +
                             node_types[nodes.back().type].devices;
}

RankId Cluster::rank_of(NodeId node, std::uint32_t device) const {
  if (node_types.size() == 1) {
    return RankId(node.value() * node_types.front().devices + device);
  }
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < node.value(); ++i) {
    first += node_types[nodes[i].type].devices;
  }
  return RankId(first + device);
}

NodeId Cluster::node_of(RankId rank) const {
  if (node_types.size() == 1) {
    return NodeId(rank.value() / node_types.front().devices);
  }
  std::uint32_t node = 0;
  std::uint32_t end = node_types[nodes[0].type].devices;
  while (rank.value() >= end) {
    end += node_types[nodes[++node].type].devices;
  }
  return NodeId(node);
}

std::uint32_t Cluster::device_of(RankId rank) const {
  return rank.value() - rank_of(node_of(rank), 0).value();
}

std::optional<NodeId> Cluster::find(std::string_view node_name) const {
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].name == node_name) {
      return NodeId(i);
    }
  }
  return std::nullopt;
}

const FabricTier& Cluster::tier_between(NodeId a, NodeId b) const {
  const Node& first = nodes[a.value()];
  const Node& second = nodes[b.value()];
  if (first.tor == second.tor) {
    return tor;
  }
  return first.pod == second.pod ? pod : core;
}

Result<void> validate(const Cluster& cluster) {
  if (!valid_name(cluster.name)) {
    return fail(ErrorCode::kInvalid, "cluster name \"{}\" is not a valid name", cluster.name);
  }
  if (cluster.nodes.empty()) {
    return fail(ErrorCode::kInvalid, "cluster {} has no nodes", cluster.name);
  }
  std::set<std::string_view> type_names;
  for (const DeviceType& type : cluster.device_types) {
    if (const auto ok = check_device_type(type); !ok) {
      return ok;
    }
    if (!type_names.insert(type.name).second) {
      return fail(ErrorCode::kInvalid, "device type {} is listed twice", type.name);
    }
  }
  type_names.clear();
  for (const NodeType& type : cluster.node_types) {
    if (const auto ok = check_node_type(cluster, type); !ok) {
      return ok;
    }
    if (!type_names.insert(type.name).second) {
      return fail(ErrorCode::kInvalid, "node type {} is listed twice", type.name);
    }
  }
  for (const FabricTier* tier : {&cluster.tor, &cluster.pod, &cluster.core}) {
    if (!std::isfinite(tier->latency_s) || tier->latency_s < 0 ||
        !std::isfinite(tier->oversubscription) || tier->oversubscription < 1) {
      return fail(ErrorCode::kInvalid,
                  "fabric tier {}: latency_s must not be negative, oversubscription at least 1",
                  tier->name);
    }
  }
  return check_nodes(cluster);
}

}  // namespace tapas::solver
