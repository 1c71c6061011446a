#include "solver/topo/comm_tables.h"

#include "solver/model/device_order.h"
#include "solver/topo/link_rates.h"
#include "solver/topo/oddities.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace tapas::solver {
namespace {

std::vector<std::uint32_t> first_gpus(std::uint32_t count) {
  std::vector<std::uint32_t> gpus(count);
  std::iota(gpus.begin(), gpus.end(), 0U);
  return gpus;
}

CommGraph searched(const TopoSystem& system, bool between_nodes) {
  return comm_graph(system, search_channels(system, between_nodes));
}

DevicePath device_path(const TopoSystem::Path& path) { return {path.type, bytes_per_s(path.gbs)}; }

/// Paths are wanted by device, the system numbers its GPUs in the file's order.
std::vector<std::size_t> places_of_devices(const TopoSystem& system) {
  std::vector<std::size_t> place(system.gpus().size());
  for (std::size_t g = 0; g < place.size(); ++g) {
    place[system.gpus()[g].topo] = g;
  }
  return place;
}

void describe_paths(const TopoSystem& system, TopoNode& node) {
  const std::vector<std::size_t> place = places_of_devices(system);
  double slowest = 0;
  for (const std::size_t from : place) {
    for (const std::size_t to : place) {
      const TopoSystem::Path& path = system.path(NodeKind::kGpu, from, NodeKind::kGpu, to);
      node.comm.paths.push_back(from == to ? DevicePath{PathType::kLoc, 0} : device_path(path));
      if (from != to) {
        const double rate = node.comm.paths.back().bytes_per_s;
        slowest = slowest == 0 ? rate : std::min(slowest, rate);
      }
    }
    const bool has_nic = !system.local_nets(from).empty();
    node.comm.nic_paths.push_back(
        has_nic ? device_path(
                      system.path(NodeKind::kGpu, from, NodeKind::kNet, system.net_of_gpu(from, 0)))
                : DevicePath{});
  }
  node.fast_link_bytes_per_s = slowest;
}

void describe_nics(const NcclTopo& topo, const TopoSystem& system, TopoNode& node) {
  std::map<std::uint32_t, double> rate_of_card;
  std::set<std::uint32_t> counted;
  for (std::size_t g = 0; g < system.gpus().size(); ++g) {
    if (system.local_nets(g).empty()) {
      continue;
    }
    for (std::uint32_t channel = 0; channel < system.nets_per_gpu(g); ++channel) {
      const std::uint32_t net = system.net_of_gpu(g, channel);
      if (counted.insert(net).second) {
        const TopoSystem::Path& path = system.path(NodeKind::kGpu, g, NodeKind::kNet, net);
        const std::uint32_t card = topo.nics[net].device;
        double& rate = rate_of_card[card];
        rate = std::min(rate + bytes_per_s(path.gbs), topo.devices[card].bytes_per_s);
      }
    }
  }
  for (const auto& [card, rate] : rate_of_card) {
    node.nic_bytes_per_s = node.nics == 0 ? rate : std::min(node.nic_bytes_per_s, rate);
    ++node.nics;
  }
}

/// What each link carries when all channels run at their rate, by its two ends.
using Ends = std::array<std::uint32_t, 5>;
Ends ends_of(const TopoSystem& system, std::uint32_t l) {
  const TopoSystem::Link& link = system.links()[l];
  const TopoSystem::Node& from = system.nodes()[link.from];
  const TopoSystem::Node& to = system.nodes()[link.to];
  return {static_cast<std::uint32_t>(from.kind), from.index, static_cast<std::uint32_t>(to.kind),
          to.index, static_cast<std::uint32_t>(link.type)};
}

class Load {
 public:
  explicit Load(const TopoSystem& system) : system_(system) {}

  void add(NodeKind from, std::size_t i, NodeKind to, std::size_t j, float gbs) {
    for (const std::uint32_t l : system_.path(from, i, to, j).links) {
      load_[ends_of(system_, l)] += gbs;
    }
  }

  /// The slowest link's rate over its load; 1 at most, 0 when a link is gone.
  [[nodiscard]] double pace_on(const TopoSystem& now) const {
    std::map<Ends, float> rate;
    for (std::uint32_t l = 0; l < now.links().size(); ++l) {
      rate[ends_of(now, l)] = now.links()[l].gbs;
    }
    double pace = 1;
    for (const auto& [ends, gbs] : load_) {
      const auto there = rate.find(ends);
      pace = std::min(pace, there == rate.end() ? 0.0 : double{there->second} / double{gbs});
    }
    return pace;
  }

 private:
  const TopoSystem& system_;
  std::map<Ends, float> load_;
};

double pace_of(const TopoChannels& of, const TopoSystem& healthy, const TopoSystem& now,
               bool between_nodes) {
  Load load(healthy);
  for (const TopoChannel& channel : of.channels) {
    const std::uint32_t first = channel.gpus.front();
    const std::uint32_t last = channel.gpus.back();
    if (of.pattern == Pattern::kNvls) {
      for (std::size_t g = 0; g < healthy.gpus().size(); ++g) {
        const float gbs = of.intra_gbs * (g == first ? 2.0F : 1.0F);
        load.add(NodeKind::kGpu, g, NodeKind::kSwitch, 0, gbs);
        load.add(NodeKind::kSwitch, 0, NodeKind::kGpu, g, gbs);
      }
    }
    for (std::size_t i = 1; i < channel.gpus.size(); ++i) {
      load.add(NodeKind::kGpu, channel.gpus[i - 1], NodeKind::kGpu, channel.gpus[i], of.intra_gbs);
    }
    if (between_nodes) {
      load.add(NodeKind::kNet, channel.net_in, NodeKind::kGpu, first, of.inter_gbs);
      const bool ring = of.pattern == Pattern::kRing;
      load.add(NodeKind::kGpu, ring ? last : first, NodeKind::kNet, channel.net_out, of.inter_gbs);
    } else if (of.pattern == Pattern::kRing) {
      load.add(NodeKind::kGpu, last, NodeKind::kGpu, first, of.intra_gbs);
    }
  }
  return load.pace_on(now);
}

void slow_down(ChannelSet& set, double pace) {
  if (pace <= 0) {
    set.channels = 0;
  }
  set.intra_bytes_per_s *= pace;
  set.inter_bytes_per_s *= pace;
}

}  // namespace

TopoNode describe_node(const NcclTopo& topo) {
  TopoNode node;
  node.devices = static_cast<std::uint32_t>(topo.gpus.size());
  const TopoSystem whole(topo, first_gpus(node.devices));
  describe_paths(whole, node);
  describe_nics(topo, whole, node);
  const std::vector<std::uint16_t> order = device_order(node.comm, node.devices);
  for (std::uint32_t p = 1; p < node.devices; p *= 2) {
    const std::vector<std::uint32_t> group(order.begin(), order.begin() + p);
    const TopoSystem system(topo, group);
    node.comm.shapes.push_back({p, searched(system, false), searched(system, true)});
  }
  node.comm.shapes.push_back({node.devices, searched(whole, false), searched(whole, true)});
  if (node.devices == 1) {
    node.fast_link_bytes_per_s = topo.gpus.front().pcie_bytes_per_s;
  }
  return node;
}

Result<TopoNode> load_topo_node(const std::string& path) {
  constexpr std::size_t kKept = 8;
  thread_local std::deque<std::pair<std::string, TopoNode>> kept;
  const auto text = read_topo_text(path);
  if (!text) {
    return tl::unexpected<Error>(text.error());
  }
  const auto known =
      std::find_if(kept.begin(), kept.end(), [&](const auto& one) { return one.first == *text; });
  if (known != kept.end()) {
    return known->second;
  }
  auto topo = parse_nccl_topo(*text, path);
  if (!topo) {
    return tl::unexpected<Error>(topo.error());
  }
  if (topo->gpus.empty()) {
    return fail(ErrorCode::kInvalid,
                "{}: no GPU found: neither <gpu> elements nor PCI devices of class 0x03; dump the "
                "topology from a running job with NCCL_TOPO_DUMP_FILE",
                path);
  }
  leave_out_virtual_nics(*topo);
  if (kept.size() == kKept) {
    kept.pop_front();
  }
  kept.emplace_back(*text, describe_node(*topo));
  return kept.back().second;
}

CommGraph running_graph(const NcclTopo& healthy, const NcclTopo& now, std::uint32_t per_node,
                        bool between_nodes) {
  const TopoSystem before(healthy, first_gpus(per_node));
  const TopoSystem after(now, first_gpus(per_node));
  const TopoPlan plan = search_channels(before, between_nodes);
  CommGraph graph = comm_graph(before, plan);
  slow_down(graph.ring, pace_of(plan.ring, before, after, between_nodes));
  slow_down(graph.tree, pace_of(plan.tree, before, after, between_nodes));
  slow_down(graph.nvls, pace_of(plan.nvls, before, after, between_nodes));
  return graph;
}

}  // namespace tapas::solver
