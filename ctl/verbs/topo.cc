#include "ctl/table.h"
#include "ctl/verbs.h"
#include "solver/cost/collectives.h"
#include "solver/topo/comm_tables.h"
#include "solver/topo/oddities.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tapas::ctl {

namespace {

using solver::NodeKind;
using solver::TopoSystem;

constexpr double kGiga = 1e9;
constexpr std::uint32_t kManyNodes = 4;
constexpr double kSampleBytes = 256.0 * (1U << 20U);

std::string gigabytes_per_s(double bytes_per_s) {
  return fmt::format("{:.1f} GB/s", bytes_per_s / kGiga);
}

std::vector<std::uint32_t> all_gpus(const solver::NcclTopo& topo) {
  std::vector<std::uint32_t> gpus(topo.gpus.size());
  std::iota(gpus.begin(), gpus.end(), 0U);
  return gpus;
}

/// A file and what follows from it. `system` needs GPUs.
struct Shown {
  solver::NcclTopo topo;
  std::unique_ptr<TopoSystem> system;
  solver::TopoNode node;
  std::vector<std::size_t> place;  ///< of each GPU of `topo` in the system

  explicit Shown(solver::NcclTopo from) : topo(std::move(from)) {
    if (topo.gpus.empty()) {
      return;
    }
    system = std::make_unique<TopoSystem>(topo, all_gpus(topo));
    node = solver::describe_node(topo);
    place.resize(topo.gpus.size());
    for (std::size_t g = 0; g < place.size(); ++g) {
      place[system->gpus()[g].topo] = g;
    }
  }

  /// Interfaces that a GPU uses; each once, in order of channels.
  [[nodiscard]] std::vector<std::uint32_t> nets_of(std::size_t gpu) const {
    std::vector<std::uint32_t> nets;
    const std::size_t g = place[gpu];
    if (!system->local_nets(g).empty()) {
      for (std::uint32_t c = 0; c < system->nets_per_gpu(g); ++c) {
        nets.push_back(system->net_of_gpu(g, c));
      }
    }
    return nets;
  }
  [[nodiscard]] const TopoSystem::Path& to_gpu(std::size_t from, std::size_t to) const {
    return system->path(NodeKind::kGpu, place[from], NodeKind::kGpu, place[to]);
  }
  [[nodiscard]] const TopoSystem::Path& to_net(std::size_t from, std::size_t net) const {
    return system->path(NodeKind::kGpu, place[from], NodeKind::kNet, net);
  }
};

json::Value path_json(const TopoSystem::Path& path) {
  return {{"type", solver::to_string(path.type)},
          {"bytes_per_s", double{path.gbs} * kGiga},
          {"hops", path.hops()}};
}

json::Value channels_json(const solver::ChannelSet& set) {
  if (set.channels == 0) {
    return nullptr;
  }
  return {{"channels", set.channels},
          {"intra_bytes_per_s", set.intra_bytes_per_s},
          {"inter_bytes_per_s", set.inter_bytes_per_s},
          {"intra", solver::to_string(set.intra)},
          {"inter", solver::to_string(set.inter)}};
}

json::Value graph_json(const solver::CommGraph& graph, solver::GroupShape group) {
  const auto best =
      solver::best_collective(graph, solver::Collective::kAllReduce, kSampleBytes, group);
  json::Value value = {
      {"devices_per_node", group.per_node}, {"over_several_nodes", group.nodes > 1},
      {"ring", channels_json(graph.ring)},  {"tree", channels_json(graph.tree)},
      {"nvls", channels_json(graph.nvls)},  {"plain_tree", graph.plain_tree}};
  value["all_reduce_256_mib"] = {{"nodes", group.nodes},
                                 {"algorithm", solver::to_string(best.algorithm)},
                                 {"protocol", solver::to_string(best.protocol)},
                                 {"seconds", best.seconds}};
  return value;
}

/// Groups with something to say, inside a node and over several.
template <typename Visit>
void each_group(const solver::TopoNode& node, const Visit& visit) {
  for (const solver::CommShape& shape : node.comm.shapes) {
    if (shape.per_node > 1) {
      visit(shape.inside, solver::GroupShape{1, shape.per_node});
    }
  }
  for (const solver::CommShape& shape : node.comm.shapes) {
    if (shape.across.ring.channels > 0) {
      visit(shape.across, solver::GroupShape{kManyNodes, shape.per_node});
    }
  }
}

json::Value gpu_json(const Shown& shown, std::size_t i) {
  const solver::TopoGpu& gpu = shown.topo.gpus[i];
  json::Value nics = json::Value::array();
  for (const std::uint32_t net : shown.nets_of(i)) {
    nics.push_back(shown.topo.nics[net].name);
  }
  json::Value to_gpus = json::Value::array();
  for (std::size_t j = 0; j < shown.topo.gpus.size(); ++j) {
    to_gpus.push_back(path_json(shown.to_gpu(i, j)));
  }
  json::Value to_nics = json::Value::array();
  for (std::size_t n = 0; n < shown.topo.nics.size(); ++n) {
    to_nics.push_back(path_json(shown.to_net(i, n)));
  }
  return {{"dev", gpu.dev},
          {"busid", gpu.busid},
          {"sm", gpu.sm},
          {"numa", gpu.numa},
          {"nvlinks", gpu.nvlinks},
          {"nvlink_bytes_per_s", gpu.nvlink_bytes_per_s},
          {"pcie_bytes_per_s", gpu.pcie_bytes_per_s},
          {"c2c_bytes_per_s", gpu.c2c_bytes_per_s},
          {"gdr", gpu.gdr},
          {"nics", std::move(nics)},
          {"paths_to_gpus", std::move(to_gpus)},
          {"paths_to_nics", std::move(to_nics)}};
}

json::Value to_json(const Shown& shown) {
  json::Value cpus = json::Value::array();
  for (const solver::TopoCpu& cpu : shown.topo.cpus) {
    cpus.push_back({{"numa", cpu.numa},
                    {"arch", cpu.arch},
                    {"vendor", cpu.vendor},
                    {"cores", cpu.cores},
                    {"to_cpu_bytes_per_s", cpu.to_cpu_bytes_per_s}});
  }
  json::Value gpus = json::Value::array();
  for (std::size_t i = 0; i < shown.topo.gpus.size(); ++i) {
    gpus.push_back(gpu_json(shown, i));
  }
  json::Value nics = json::Value::array();
  for (const solver::TopoNic& nic : shown.topo.nics) {
    nics.push_back({{"name", nic.name},
                    {"dev", nic.dev},
                    {"numa", nic.numa},
                    {"bytes_per_s", nic.bytes_per_s},
                    {"latency_s", nic.latency_s},
                    {"gdr", nic.gdr}});
  }
  json::Value groups = json::Value::array();
  each_group(shown.node, [&](const solver::CommGraph& graph, solver::GroupShape group) {
    groups.push_back(graph_json(graph, group));
  });
  return {{"schema", "tapas.topo/1"},          {"nvswitch", shown.topo.nvswitch},
          {"numa_nodes", std::move(cpus)},     {"gpus", std::move(gpus)},
          {"nics", std::move(nics)},           {"groups", std::move(groups)},
          {"completed", shown.topo.completed}, {"warnings", shown.topo.warnings}};
}

std::string numa_text(const solver::NcclTopo& topo) {
  Table table({{"NUMA", Align::kRight},
               {"CPU"},
               {"CORES", Align::kRight},
               {"TO OTHERS", Align::kRight},
               {"PCI DEVICES", Align::kRight}});
  for (std::size_t i = 0; i < topo.cpus.size(); ++i) {
    const solver::TopoCpu& cpu = topo.cpus[i];
    std::size_t devices = 0;
    for (const solver::TopoDevice& device : topo.devices) {
      devices += device.cpu == i && device.kind != solver::TopoKind::kVirtualNic ? 1U : 0U;
    }
    const std::string kind = cpu.arch.empty() ? "not said" : cpu.arch + " " + cpu.vendor;
    table.add_row({fmt::to_string(cpu.numa), printable(kind),
                   cpu.cores == 0 ? "-" : fmt::to_string(cpu.cores),
                   topo.cpus.size() < 2 ? "-" : gigabytes_per_s(cpu.to_cpu_bytes_per_s),
                   fmt::to_string(devices)});
  }
  return table.text();
}

std::string gpu_text(const Shown& shown) {
  Table table({{"GPU", Align::kRight},
               {"BUS ID"},
               {"SM", Align::kRight},
               {"NUMA", Align::kRight},
               {"NVLINKS", Align::kRight},
               {"NVLINK", Align::kRight},
               {"PCIE", Align::kRight},
               {"NICS"}});
  for (std::size_t i = 0; i < shown.topo.gpus.size(); ++i) {
    const solver::TopoGpu& gpu = shown.topo.gpus[i];
    std::string nics;
    for (const std::uint32_t net : shown.nets_of(i)) {
      nics += (nics.empty() ? "" : ", ") + printable(shown.topo.nics[net].name);
    }
    table.add_row({fmt::to_string(gpu.dev), printable(gpu.busid), fmt::to_string(gpu.sm),
                   fmt::to_string(gpu.numa), fmt::to_string(gpu.nvlinks),
                   gigabytes_per_s(gpu.nvlink_bytes_per_s), gigabytes_per_s(gpu.pcie_bytes_per_s),
                   nics.empty() ? "none" : nics});
  }
  return table.text();
}

std::string nic_text(const Shown& shown) {
  Table table(
      {{"NIC"}, {"NUMA", Align::kRight}, {"SPEED", Align::kRight}, {"GPUDIRECT"}, {"SERVES GPUS"}});
  std::set<std::pair<std::string, int>> seen;
  for (std::uint32_t n = 0; n < shown.topo.nics.size(); ++n) {
    const solver::TopoNic& nic = shown.topo.nics[n];
    // A fused dump lists virtual interfaces once per NUMA node.
    if (!seen.emplace(nic.name, nic.dev).second) {
      continue;
    }
    std::string served;
    for (std::size_t i = 0; i < shown.topo.gpus.size(); ++i) {
      const auto nets = shown.nets_of(i);
      if (std::find(nets.begin(), nets.end(), n) != nets.end()) {
        served += (served.empty() ? "" : ", ") + fmt::to_string(shown.topo.gpus[i].dev);
      }
    }
    table.add_row({printable(nic.name), fmt::to_string(nic.numa), gigabytes_per_s(nic.bytes_per_s),
                   nic.gdr ? "yes" : "no", served.empty() ? "none" : served});
  }
  return table.text();
}

std::string cell(const TopoSystem::Path& path) {
  return path.hops() == 0 ? std::string(path.type == solver::PathType::kLoc ? "." : "-")
                          : fmt::format("{} {:.4g}", solver::to_string(path.type), path.gbs);
}

std::string path_text(const Shown& shown) {
  constexpr std::size_t kMostNics = 16;
  std::vector<Table::Column> columns{{"GB/S FROM", Align::kLeft}};
  for (const solver::TopoGpu& gpu : shown.topo.gpus) {
    columns.push_back({fmt::format("GPU {}", gpu.dev), Align::kRight});
  }
  const std::size_t nics = std::min(shown.topo.nics.size(), kMostNics);
  for (std::size_t n = 0; n < nics; ++n) {
    columns.push_back({printable(shown.topo.nics[n].name), Align::kRight});
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < shown.topo.gpus.size(); ++i) {
    std::vector<std::string> row{fmt::format("GPU {}", shown.topo.gpus[i].dev)};
    for (std::size_t j = 0; j < shown.topo.gpus.size(); ++j) {
      row.push_back(cell(shown.to_gpu(i, j)));
    }
    for (std::size_t n = 0; n < nics; ++n) {
      row.push_back(cell(shown.to_net(i, n)));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string channels_text(const solver::ChannelSet& set, bool across) {
  if (set.channels == 0) {
    return "-";
  }
  const double intra = set.intra_bytes_per_s / kGiga;
  const double inter = set.inter_bytes_per_s / kGiga;
  const std::string rate = across && inter != intra ? fmt::format("{:.4g}/{:.4g}", intra, inter)
                                                    : fmt::format("{:.4g}", across ? inter : intra);
  return fmt::format("{} x {} {}", set.channels, rate,
                     solver::to_string(across ? set.inter : set.intra));
}

std::string group_text(const Shown& shown) {
  Table table({{"GROUP"}, {"RING"}, {"TREE"}, {"NVLS"}, {"ALL-REDUCE OF 256 MIB"}, {"BY"}});
  each_group(shown.node, [&](const solver::CommGraph& graph, solver::GroupShape group) {
    const auto best =
        solver::best_collective(graph, solver::Collective::kAllReduce, kSampleBytes, group);
    const bool across = group.nodes > 1;
    table.add_row({fmt::format("{} x {}", format_count(group.nodes, "node"), group.per_node),
                   channels_text(graph.ring, across), channels_text(graph.tree, across),
                   channels_text(graph.nvls, across), format_seconds(best.seconds),
                   fmt::format("{}, {}", solver::to_string(best.algorithm),
                               solver::to_string(best.protocol))});
  });
  return table.empty() ? "" : "\n" + table.text();
}

std::string to_text(const Shown& shown) {
  const solver::NcclTopo& topo = shown.topo;
  std::string text = fmt::format("{}, {}, {}, {}\n\n{}", format_count(topo.gpus.size(), "GPU"),
                                 format_count(topo.nics.size(), "NIC"),
                                 format_count(topo.cpus.size(), "NUMA node"),
                                 topo.nvswitch ? "NVSwitch" : "no NVSwitch", numa_text(topo));
  if (shown.system != nullptr) {
    text += "\n" + gpu_text(shown);
    text += topo.nics.empty() ? "" : "\n" + nic_text(shown);
    text += "\n" + path_text(shown) + group_text(shown);
  }
  for (const std::string& rule : topo.completed) {
    text += "\nNot in the file: " + printable(rule);
  }
  return text + (topo.completed.empty() ? "" : "\n");
}

Result<Exit> show(const std::string& file, bool as_json) {
  const auto text = solver::read_topo_text(file);
  if (!text) {
    return tl::unexpected(text.error());
  }
  const auto first = text->find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (*text)[first] == '{') {
    return fail(ErrorCode::kInvalid,
                "{}: line 1: JSON, not an NCCL topology; for a cluster file: tapasctl cluster show",
                file);
  }
  auto topo = solver::parse_nccl_topo(*text, file);
  if (!topo) {
    return tl::unexpected(topo.error());
  }
  solver::leave_out_virtual_nics(*topo);
  const Shown shown(std::move(*topo));
  for (const std::string& warning : shown.topo.warnings) {
    say("tapasctl: " + printable(warning));
  }
  if (as_json) {
    print_json(to_json(shown));
  } else {
    print(to_text(shown));
  }
  return Exit::kOk;
}

}  // namespace

void add_topo(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("topo", "Read a node's topology as NCCL dumped it");
  verb->require_subcommand(1);
  verb->footer("Example:\n  tapasctl topo show topo.xml");
  CLI::App* shown = verb->add_subcommand(
      "show", "NUMA nodes, GPUs, NICs, paths, and the channels NCCL would use");
  shown->footer(
      "Examples:\n  tapasctl topo show topo.xml\n"
      "NCCL writes the file when NCCL_TOPO_DUMP_FILE names it.");
  auto file = std::make_shared<std::string>();
  shown->add_option("FILE", *file, "NCCL topo.xml")->required();
  add_format_option(*shown, context);
  shown->callback(
      [&context, file] { context.run = [&context, file] { return show(*file, context.json()); }; });
}

}  // namespace tapas::ctl
