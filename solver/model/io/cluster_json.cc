#include "solver/model/io/catalogue.h"
#include "solver/model/io/read.h"
#include "solver/topo/comm_tables.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace tapas::solver::io {

namespace {

constexpr std::size_t kMaxTypes = 64;
constexpr std::size_t kMaxNodes = 100'000;
constexpr std::size_t kMaxCollectives = 100'000;
constexpr double kMaxLatency = 1.0;

template <typename T>
std::uint32_t index_of(const std::vector<T>& types, const std::string& name, json::ObjectReader& in,
                       std::string_view key) {
  for (std::uint32_t i = 0; i < types.size(); ++i) {
    if (types[i].name == name) {
      return i;
    }
  }
  in.absorb({ErrorCode::kInvalid, fmt::format("{}: \"{}\" is not defined", in.child(key), name)});
  return 0;
}

/// A device type in full, or {"catalogue": NAME} with a name of its own if it likes.
void add_device_type(const json::Value& value, const std::string& where, Cluster& cluster,
                     json::ObjectReader& parent) {
  if (!value.is_object() || !value.contains("catalogue")) {
    if (auto type = read_device_type(value, where)) {
      cluster.device_types.push_back(std::move(*type));
    } else {
      parent.absorb(type.error());
    }
    return;
  }
  json::ObjectReader in(value, where);
  const std::string entry = in.string("catalogue");
  const std::string name = in.string_or("name", "");
  if (const auto done = in.finish(); !done) {
    parent.absorb(done.error());
    return;
  }
  auto device = load_catalogue_device(entry);
  if (!device) {
    parent.absorb({device.error().code, in.child("catalogue") + ": " + device.error().message});
    return;
  }
  if (!name.empty()) {
    device->type.name = name;
  }
  cluster.device_types.push_back(std::move(device->type));
}

Result<void> apply_topo(const std::string& path, NodeType& type) {
  auto node = load_topo_node(path);
  if (!node) {
    return tl::unexpected<Error>(node.error());
  }
  type.devices = node->devices;
  type.fast_link_bytes_per_s = node->fast_link_bytes_per_s;
  type.nics = node->nics;
  type.nic_bytes_per_s = node->nic_bytes_per_s;
  type.comm = std::move(node->comm);
  return {};
}

MeasuredCollective read_collective(const json::Value& value, const std::string& where,
                                   json::ObjectReader& parent) {
  json::ObjectReader in(value, where);
  MeasuredCollective one;
  const std::string op = in.word("op", {"all_reduce", "all_gather", "reduce_scatter"});
  one.op = op == "all_gather"       ? Collective::kAllGather
           : op == "reduce_scatter" ? Collective::kReduceScatter
                                    : Collective::kAllReduce;
  one.nodes = u32_or(in, "nodes", 1, 1, static_cast<std::int64_t>(kMaxNodes));
  one.devices = u32(in, "devices", 2, 1 << 20);
  one.bytes = in.number("bytes", 1, kMaxAmount);
  one.seconds = in.number("seconds", 1e-12, kMaxAmount);
  if (const auto done = in.finish(); !done) {
    parent.absorb(done.error());
  }
  return one;
}

void read_node_type(const json::Value& value, const std::string& where, const std::string& folder,
                    Cluster& cluster, json::ObjectReader& parent) {
  json::ObjectReader in(value, where);
  NodeType type;
  type.name = in.string("name");
  type.device_type = index_of(cluster.device_types, in.string("device_type"), in, "device_type");
  if (in.has("topo_file")) {
    type.fast_link_latency_s = in.number_or("fast_link_latency_s", 0, 0, kMaxLatency);
    type.topo_file = in.string("topo_file");
    if (in.ok()) {
      if (const auto ok = apply_topo(std::filesystem::path(folder) / type.topo_file, type); !ok) {
        in.absorb(
            {ok.error().code, fmt::format("{}: {}", in.child("topo_file"), ok.error().message)});
      }
    }
  } else {
    read_links(in, type);
  }
  std::vector<MeasuredCollective> measured;
  if (in.has("measured_collectives")) {
    const json::Value& entries = in.array("measured_collectives", kMaxCollectives);
    for (std::size_t i = 0; i < entries.size() && in.ok(); ++i) {
      measured.push_back(read_collective(entries[i], in.child("measured_collectives", i), in));
    }
  }
  if (const auto done = in.finish(); !done) {
    parent.absorb(done.error());
    return;
  }
  type.comm = comm_table(type);
  type.comm.measured = std::move(measured);
  cluster.node_types.push_back(std::move(type));
}

/// ToRs and pods of groups get running numbers over the whole file, so groups never share one.
struct Numbering {
  std::uint32_t tors = 0;
  std::uint32_t pods = 0;
};

void read_group(json::ObjectReader& in, Node node, Numbering& numbering, Cluster& cluster) {
  const std::string prefix = in.string("name_prefix");
  const std::uint32_t first = u32_or(in, "first", 0, 0, 1'000'000'000);
  const std::uint32_t digits = u32_or(in, "digits", 1, 1, 9);
  const std::uint32_t count = u32(in, "count", 1, static_cast<std::int64_t>(kMaxNodes));
  const std::uint32_t per_tor = u32_or(in, "nodes_per_tor", count, 1, 1 << 20);
  const std::uint32_t per_pod = u32_or(in, "tors_per_pod", 1 << 20, 1, 1 << 20);
  if (!in.ok()) {
    return;
  }
  if (cluster.nodes.size() + count > kMaxNodes) {
    in.absorb(
        {ErrorCode::kInvalid, fmt::format("{}: more than {} nodes", in.child("count"), kMaxNodes)});
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t tor = i / per_tor;
    node.name = fmt::format("{}{:0{}}", prefix, first + i, digits);
    node.tor = fmt::format("tor{}", numbering.tors + tor);
    node.pod = fmt::format("pod{}", numbering.pods + tor / per_pod);
    cluster.nodes.push_back(node);
  }
  const std::uint32_t last_tor = (count - 1) / per_tor;
  numbering.tors += last_tor + 1;
  numbering.pods += last_tor / per_pod + 1;
}

void read_nodes(const json::Value& value, const std::string& where, Numbering& numbering,
                Cluster& cluster, json::ObjectReader& parent) {
  json::ObjectReader in(value, where);
  Node node;
  node.type = index_of(cluster.node_types, in.string("type"), in, "type");
  node.spare = in.boolean_or("spare", false);
  if (in.has("name_prefix")) {
    read_group(in, node, numbering, cluster);
  } else {
    node.name = in.string("name");
    node.tor = in.string_or("tor", "");
    node.pod = in.string_or("pod", "");
    cluster.nodes.push_back(node);
  }
  if (const auto done = in.finish(); !done) {
    parent.absorb(done.error());
  }
}

FabricTier read_tier(json::ObjectReader& fabric, const char* name) {
  FabricTier tier;
  tier.name = name;
  json::ObjectReader in(fabric.object(name), fabric.child(name));
  if (!fabric.ok()) {
    return tier;
  }
  tier.latency_s = in.number("latency_s", 0, kMaxLatency);
  tier.oversubscription = in.number_or("oversubscription", 1, 1, 1e6);
  if (const auto done = in.finish(); !done) {
    fabric.absorb(done.error());
  }
  return tier;
}

void read_fabric(json::ObjectReader& in, Cluster& cluster) {
  json::ObjectReader fabric(in.object("fabric"), in.child("fabric"));
  if (!in.ok()) {
    return;
  }
  cluster.tor = read_tier(fabric, "tor");
  cluster.pod = read_tier(fabric, "pod");
  cluster.core = read_tier(fabric, "core");
  if (const auto done = fabric.finish(); !done) {
    in.absorb(done.error());
  }
}

}  // namespace

Result<DeviceType> read_device_type(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  DeviceType type;
  type.name = in.string("name");
  type.peak_flops = in.number("peak_flops", 1, kMaxAmount);
  type.memory_bytes = in.number("memory_bytes", 1, kMaxAmount);
  type.memory_bytes_per_s = in.number("memory_bytes_per_s", 1, kMaxAmount);
  type.matmul_efficiency = in.number("matmul_efficiency", 0, 1);
  type.matmul_half_flops = in.number_or("matmul_half_flops", 0, 0, kMaxAmount);
  type.attention_efficiency = in.number("attention_efficiency", 0, 1);
  type.memory_efficiency = in.number_or("memory_efficiency", 1, 0, 1);
  type.operator_launch_s = in.number_or("operator_launch_s", 0, 0, kMaxLatency);
  type.collective_launch_s = in.number_or("collective_launch_s", 0, 0, kMaxLatency);
  type.collective_library = in.word("collective_library", {"nccl", "hccl"});
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return type;
}

void read_links(json::ObjectReader& in, NodeType& type) {
  type.devices = u32(in, "devices", 1, 1024);
  type.fast_link_bytes_per_s = in.number("fast_link_bytes_per_s", 0, kMaxAmount);
  type.fast_link_latency_s = in.number_or("fast_link_latency_s", 0, 0, kMaxLatency);
  type.nics = u32(in, "nics", 0, 1024);
  type.nic_bytes_per_s = in.number("nic_bytes_per_s", 0, kMaxAmount);
}

Result<Cluster> read_cluster(const json::Value& value, const std::string& where,
                             const std::string& folder) {
  json::ObjectReader in(value, where);
  in.require_schema("tapas.cluster/1");
  Cluster cluster;
  cluster.name = in.string("name");
  const json::Value& device_types = in.array("device_types", kMaxTypes);
  for (std::size_t i = 0; i < device_types.size() && in.ok(); ++i) {
    add_device_type(device_types[i], in.child("device_types", i), cluster, in);
  }
  const json::Value& node_types = in.array("node_types", kMaxTypes);
  for (std::size_t i = 0; i < node_types.size() && in.ok(); ++i) {
    read_node_type(node_types[i], in.child("node_types", i), folder, cluster, in);
  }
  const json::Value& nodes = in.array("nodes", kMaxNodes);
  Numbering numbering;
  for (std::size_t i = 0; i < nodes.size() && in.ok(); ++i) {
    read_nodes(nodes[i], in.child("nodes", i), numbering, cluster, in);
  }
  read_fabric(in, cluster);
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  if (const auto valid = validate(cluster); !valid) {
    return tl::unexpected<Error>(valid.error());
  }
  return cluster;
}

}  // namespace tapas::solver::io

namespace tapas::solver {

Result<Cluster> cluster_from_json(const json::Value& value, const std::string& folder) {
  return io::read_cluster(value, "cluster", folder);
}

Result<Cluster> load_cluster(const std::string& path) {
  const auto value = json::parse_file(path);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  return io::read_cluster(*value, path, std::filesystem::path(path).parent_path().string());
}

}  // namespace tapas::solver
