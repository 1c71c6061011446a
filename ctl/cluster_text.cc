#include "ctl/cluster_text.h"

#include "ctl/table.h"
#include "solver/cost/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace tapas::ctl {
namespace {

constexpr double kGiga = 1e9;
// One way through one switch, three, and five: what RoCE and InfiniBand fabrics show.
constexpr double kTorLatencyS = 6e-6;
constexpr double kPodLatencyS = 9e-6;
constexpr double kCoreLatencyS = 12e-6;

std::string teraflops(double flops) { return format_number(flops / 1e12) + " TFLOPS"; }
std::string rate(double bytes_per_s) { return fmt::format("{:.4g} GB/s", bytes_per_s / kGiga); }

json::Value device_to_json(const solver::DeviceType& type) {
  return {{"name", type.name},
          {"peak_flops", type.peak_flops},
          {"memory_bytes", type.memory_bytes},
          {"memory_bytes_per_s", type.memory_bytes_per_s},
          {"matmul_efficiency", type.matmul_efficiency},
          {"matmul_half_flops", type.matmul_half_flops},
          {"attention_efficiency", type.attention_efficiency},
          {"memory_efficiency", type.memory_efficiency},
          {"operator_launch_s", type.operator_launch_s},
          {"collective_launch_s", type.collective_launch_s},
          {"collective_library", type.collective_library}};
}

json::Value links_to_json(const solver::NodeType& node) {
  return {{"devices", node.devices},
          {"fast_link_bytes_per_s", node.fast_link_bytes_per_s},
          {"fast_link_latency_s", node.fast_link_latency_s},
          {"nics", node.nics},
          {"nic_bytes_per_s", node.nic_bytes_per_s}};
}

/// Nodes of one ToR that look the same.
struct Rack {
  std::string pod;
  std::string tor;
  std::uint32_t type = 0;
  bool spare = false;
  auto operator<=>(const Rack&) const = default;
};

std::map<Rack, std::vector<std::string>> racks_of(const solver::Cluster& cluster) {
  std::map<Rack, std::vector<std::string>> racks;
  for (const solver::Node& node : cluster.nodes) {
    racks[{node.pod, node.tor, node.type, node.spare}].push_back(node.name);
  }
  return racks;
}

/// "node-000 to node-015" of names in file order.
std::string span(const std::vector<std::string>& names) {
  return names.size() == 1 ? printable(names.front())
                           : printable(names.front()) + " to " + printable(names.back());
}

}  // namespace

json::Value cluster_to_json(const NewCluster& made) {
  json::Value device_types = json::Value::array();
  json::Value node_types = json::Value::array();
  json::Value nodes = json::Value::array();
  std::uint32_t next = 0;
  std::uint32_t all = 0;
  std::set<std::string> known;
  for (const NewCluster::Group& group : made.groups) {
    all += group.nodes;
  }
  const std::size_t digits = std::max<std::size_t>(3, fmt::to_string(all - 1).size());
  for (const NewCluster::Group& group : made.groups) {
    const solver::CatalogueDevice& device = group.device;
    if (known.insert(device.type.name).second) {
      device_types.push_back(device_to_json(device.type));
      json::Value type = {{"name", device.node.name}, {"device_type", device.type.name}};
      if (made.topo_file.empty()) {
        solver::NodeType node = device.node;
        if (made.devices > 0) {
          node.devices = made.devices;
        }
        type.update(links_to_json(node));
      } else {
        type["topo_file"] = made.topo_file;
        type["fast_link_latency_s"] = device.node.fast_link_latency_s;
      }
      node_types.push_back(std::move(type));
    }
    for (const bool spare : {false, true}) {
      const std::uint32_t spares = std::min(made.spares, group.nodes);
      const std::uint32_t count = spare ? spares : group.nodes - spares;
      if (count == 0) {
        continue;
      }
      json::Value entry = {{"name_prefix", "node-"},
                           {"first", next},
                           {"digits", digits},
                           {"count", count},
                           {"type", device.node.name}};
      if (made.nodes_per_tor > 0) {
        entry["nodes_per_tor"] = made.nodes_per_tor;
      }
      if (made.tors_per_pod > 0) {
        entry["tors_per_pod"] = made.tors_per_pod;
      }
      if (spare) {
        entry["spare"] = true;
      }
      nodes.push_back(std::move(entry));
      next += count;
    }
  }
  return {{"schema", "tapas.cluster/1"},
          {"name", made.name},
          {"device_types", device_types},
          {"node_types", node_types},
          {"nodes", nodes},
          {"fabric",
           {{"tor", {{"latency_s", kTorLatencyS}}},
            {"pod", {{"latency_s", kPodLatencyS}}},
            {"core",
             {{"latency_s", kCoreLatencyS}, {"oversubscription", made.core_oversubscription}}}}}};
}

std::string cluster_text(const solver::Cluster& cluster) {
  Table devices({{"DEVICE"},
                 {"PEAK", Align::kRight},
                 {"MEMORY", Align::kRight},
                 {"BANDWIDTH", Align::kRight},
                 {"MATMUL", Align::kRight},
                 {"ATTENTION", Align::kRight},
                 {"LIBRARY"}});
  for (const solver::DeviceType& type : cluster.device_types) {
    devices.add_row({printable(type.name), teraflops(type.peak_flops),
                     format_bytes(type.memory_bytes), rate(type.memory_bytes_per_s),
                     format_percent(type.matmul_efficiency),
                     format_percent(type.attention_efficiency), type.collective_library});
  }
  std::vector<std::size_t> count(cluster.node_types.size(), 0);
  for (const solver::Node& node : cluster.nodes) {
    ++count[node.type];
  }
  Table types({{"NODE TYPE"},
               {"NODES", Align::kRight},
               {"DEVICES", Align::kRight},
               {"FAST LINK", Align::kRight},
               {"NICS", Align::kRight},
               {"NIC", Align::kRight},
               {"TOPOLOGY"}});
  for (std::size_t k = 0; k < cluster.node_types.size(); ++k) {
    const solver::NodeType& type = cluster.node_types[k];
    types.add_row({printable(type.name), fmt::to_string(count[k]),
                   fmt::format("{} x {}", type.devices,
                               printable(cluster.device_types[type.device_type].name)),
                   rate(type.fast_link_bytes_per_s), fmt::to_string(type.nics),
                   rate(type.nic_bytes_per_s),
                   type.topo_file.empty() ? "as given" : printable(type.topo_file)});
  }
  Table racks({{"POD"}, {"TOR"}, {"TYPE"}, {"NODES", Align::kRight}, {"NAMES"}, {"USE"}});
  for (const auto& [rack, names] : racks_of(cluster)) {
    racks.add_row({printable(rack.pod), printable(rack.tor),
                   printable(cluster.node_types[rack.type].name), fmt::to_string(names.size()),
                   span(names), rack.spare ? "spare" : "plans"});
  }
  Table fabric({{"BETWEEN NODES"},
                {"LATENCY", Align::kRight},
                {"OVERSUBSCRIPTION", Align::kRight},
                {"A DEVICE GETS"}});
  for (const auto& [words, tier] :
       {std::pair("under one ToR", &cluster.tor), std::pair("in one pod", &cluster.pod),
        std::pair("across pods", &cluster.core)}) {
    std::string shares;
    for (const solver::NodeType& type : cluster.node_types) {
      shares += (shares.empty() ? "" : ", ") +
                rate(solver::nic_share_bytes_per_s(type) / tier->oversubscription);
    }
    fabric.add_row(
        {words, format_seconds(tier->latency_s), format_number(tier->oversubscription), shares});
  }
  return fmt::format("{}: {}, {}\n\n{}\n{}\n{}\n{}", printable(cluster.name),
                     format_count(cluster.nodes.size(), "node"),
                     format_count(cluster.device_count(), "device"), devices.text(), types.text(),
                     racks.text(), fabric.text());
}

json::Value cluster_summary(const solver::Cluster& cluster) {
  json::Value devices = json::Value::array();
  for (const solver::DeviceType& type : cluster.device_types) {
    devices.push_back(device_to_json(type));
  }
  json::Value types = json::Value::array();
  for (const solver::NodeType& type : cluster.node_types) {
    json::Value entry = {{"name", type.name},
                         {"device_type", cluster.device_types[type.device_type].name}};
    entry.update(links_to_json(type));
    entry["nic_share_bytes_per_s"] = solver::nic_share_bytes_per_s(type);
    if (!type.topo_file.empty()) {
      entry["topo_file"] = type.topo_file;
    }
    types.push_back(std::move(entry));
  }
  json::Value racks = json::Value::array();
  for (const auto& [rack, names] : racks_of(cluster)) {
    racks.push_back({{"pod", rack.pod},
                     {"tor", rack.tor},
                     {"type", cluster.node_types[rack.type].name},
                     {"spare", rack.spare},
                     {"nodes", names}});
  }
  return {{"schema", "tapas.cluster-summary/1"},
          {"name", cluster.name},
          {"node_count", cluster.nodes.size()},
          {"device_count", cluster.device_count()},
          {"device_types", devices},
          {"node_types", types},
          {"racks", racks}};
}

std::vector<std::string> cluster_warnings(const solver::Cluster& cluster) {
  std::vector<std::string> warnings;
  std::set<std::uint32_t> used;
  std::set<std::string> tors;
  bool plans = false;
  for (const solver::Node& node : cluster.nodes) {
    used.insert(node.type);
    tors.insert(node.pod + "/" + node.tor);
    plans = plans || !node.spare;
  }
  if (!plans) {
    warnings.push_back("every node is a spare: plans have nowhere to go");
  }
  std::set<std::string> libraries;
  for (std::uint32_t k = 0; k < cluster.node_types.size(); ++k) {
    const solver::NodeType& type = cluster.node_types[k];
    if (used.count(k) == 0) {
      warnings.push_back(fmt::format("node type {} is not used", printable(type.name)));
      continue;
    }
    libraries.insert(cluster.device_types[type.device_type].collective_library);
    if (type.devices > 1 && type.fast_link_bytes_per_s < solver::nic_share_bytes_per_s(type)) {
      warnings.push_back(
          fmt::format("node type {}: a device sends faster to another node ({}) than inside its "
                      "own ({})",
                      printable(type.name), rate(solver::nic_share_bytes_per_s(type)),
                      rate(type.fast_link_bytes_per_s)));
    }
    if (type.nics == 0 && cluster.nodes.size() > 1) {
      warnings.push_back(fmt::format("node type {} has no NIC", printable(type.name)));
    }
  }
  if (libraries.size() > 1) {
    warnings.push_back("devices with different collective libraries never share a group");
  }
  if (tors.size() == 1 && cluster.nodes.size() > 64) {
    warnings.push_back(
        fmt::format("all {} nodes are under one ToR: give nodes_per_tor if they are not",
                    cluster.nodes.size()));
  }
  if (cluster.tor.latency_s > cluster.pod.latency_s ||
      cluster.pod.latency_s > cluster.core.latency_s) {
    warnings.push_back("a nearer tier of the fabric has more latency than a farther one");
  }
  return warnings;
}

json::Value collectives_to_json(const std::vector<solver::MeasuredCollective>& table) {
  json::Value entries = json::Value::array();
  for (const solver::MeasuredCollective& one : table) {
    const char* op = one.op == solver::Collective::kAllReduce   ? "all_reduce"
                     : one.op == solver::Collective::kAllGather ? "all_gather"
                                                                : "reduce_scatter";
    entries.push_back({{"op", op},
                       {"nodes", one.nodes},
                       {"devices", one.devices},
                       {"bytes", one.bytes},
                       {"seconds", one.seconds}});
  }
  return entries;
}

std::string catalogue_text(const Catalogue& catalogue) {
  Table table({{"NAME"},
               {"DEVICE"},
               {"PEAK", Align::kRight},
               {"MEMORY", Align::kRight},
               {"BANDWIDTH", Align::kRight},
               {"PER NODE", Align::kRight},
               {"FAST LINK", Align::kRight},
               {"NIC", Align::kRight},
               {"LIBRARY"}});
  for (const auto& [name, device] : catalogue) {
    table.add_row({printable(name), printable(device.type.name), teraflops(device.type.peak_flops),
                   format_bytes(device.type.memory_bytes), rate(device.type.memory_bytes_per_s),
                   fmt::to_string(device.node.devices), rate(device.node.fast_link_bytes_per_s),
                   rate(device.node.nic_bytes_per_s), device.type.collective_library});
  }
  std::string text = table.text();
  if (catalogue.size() == 1) {
    const solver::CatalogueDevice& device = catalogue.front().second;
    text += fmt::format(
        "\nreaches {} of peak in large matrix products, {} in attention, {} of the memory "
        "bandwidth\nsource: {}\n",
        format_percent(device.type.matmul_efficiency),
        format_percent(device.type.attention_efficiency),
        format_percent(device.type.memory_efficiency), printable(device.source));
    if (!device.note.empty()) {
      text += "note: " + printable(device.note) + "\n";
    }
  }
  return text;
}

json::Value catalogue_to_json(const Catalogue& catalogue) {
  json::Value entries = json::Value::array();
  for (const auto& [name, device] : catalogue) {
    json::Value node = {{"name", device.node.name}};
    node.update(links_to_json(device.node));
    entries.push_back({{"name", name},
                       {"device_type", device_to_json(device.type)},
                       {"node", node},
                       {"source", device.source},
                       {"note", device.note}});
  }
  return entries;
}

}  // namespace tapas::ctl
