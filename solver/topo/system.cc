#include "solver/topo/system.h"

#include "base/check.h"
#include "solver/topo/link_rates.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace tapas::solver {
namespace {

constexpr double kGiga = 1e9;
constexpr std::uint32_t kNoNode = ~0U;
constexpr std::uint32_t kMaxChannels = 64;

TopoSystem::Host host_of(const TopoCpu& cpu) {
  using Host = TopoSystem::Host;
  const std::string_view arch = cpu.arch;
  const std::string_view vendor = cpu.vendor;
  if (arch.starts_with("ppc64")) {
    return Host::kPower;
  }
  if (arch.starts_with("arm64")) {
    return Host::kArm;
  }
  if (!arch.starts_with("x86_64")) {
    return Host::kOther;
  }
  return vendor.starts_with("GenuineIntel")                                         ? Host::kIntel
         : vendor.starts_with("AuthenticAMD")                                       ? Host::kAmd
         : vendor.starts_with("CentaurHauls") || vendor.starts_with("  Shanghai  ") ? Host::kZhaoxin
                                                                                    : Host::kOther;
}

/// Broadcom Gen4 and Gen5 switches show two levels though all their ports run at full rate. 0:
/// none.
int broadcom_generation(std::uint64_t model, std::uint64_t level) {
  const std::uint64_t known = model & ~0xFFFULL;
  if (known == 0x1000C0101000A000) {
    return 4;
  }
  return known == (0x1000C03010000000 | level * 0x1000) ? 5 : 0;
}

}  // namespace

/// Nodes with their links while they still move.
struct TopoSystem::Builder {
  struct Edge {
    std::uint32_t to;
    PathType type;
    float gbs;
  };
  struct Draft {
    NodeKind kind;
    std::vector<Edge> links;
    std::uint64_t model = 0;
    bool removed = false;
  };

  const NcclTopo& topo;
  TopoSystem& out;
  std::vector<Draft> nodes;
  std::vector<std::uint32_t> node_of_device;
  std::map<std::uint64_t, std::uint32_t> gpu_by_id, pci_by_id, nic_by_id;
  std::vector<std::uint32_t> cpus;
  std::uint32_t nvswitch = kNoNode;

  std::uint32_t create(NodeKind kind) {
    nodes.push_back({kind, {}});
    return static_cast<std::uint32_t>(nodes.size() - 1);
  }

  /// Rates of parallel links add up; links stay sorted, fastest first.
  void connect(std::uint32_t from, std::uint32_t to, PathType type, float gbs) {
    auto& links = nodes[from].links;
    auto link = std::find_if(links.begin(), links.end(),
                             [&](const Edge& one) { return one.to == to && one.type == type; });
    if (link == links.end()) {
      link = links.insert(links.end(), {to, type, 0});
    }
    Edge moved = *link;
    moved.gbs += gbs;
    while (link != links.begin() && (link - 1)->gbs < moved.gbs) {
      *link = *(link - 1);
      --link;
    }
    *link = moved;
  }
  void connect_both(std::uint32_t a, std::uint32_t b, PathType type, float gbs) {
    connect(a, b, type, gbs);
    connect(b, a, type, gbs);
  }

  void add_nets(std::size_t device, std::uint32_t nic) {
    for (const TopoNic& one : topo.nics) {
      if (one.device != device) {
        continue;
      }
      const std::uint32_t node = create(NodeKind::kNet);
      const auto gbs = static_cast<float>(one.bytes_per_s / kGiga);
      connect_both(nic, node, PathType::kNet, gbs);
      Net net;
      net.dev = one.dev;
      net.port = one.port;
      net.card = one.card;
      net.gbs = gbs;
      net.latency_us = static_cast<float>(one.latency_s * 1e6);
      net.gdr = one.gdr;
      net.same_as = static_cast<std::uint32_t>(out.nets_.size());
      for (std::uint32_t i = 0; i < out.nets_.size(); ++i) {
        if (out.nets_[i].dev == net.dev) {
          net.same_as = i;
          break;
        }
      }
      out.nets_.push_back(net);
    }
  }

  /// Children first, so that a bridge has its own links before the way up.
  void add_device(std::size_t device, std::uint32_t above, const std::vector<std::uint32_t>& wanted,
                  const std::vector<std::vector<std::size_t>>& children) {
    const TopoDevice& from = topo.devices[device];
    std::uint32_t node = kNoNode;
    switch (from.kind) {
      case TopoKind::kGpu: {
        const auto gpu = std::find_if(wanted.begin(), wanted.end(), [&](std::uint32_t g) {
          return topo.gpus[g].device == device;
        });
        if (gpu == wanted.end()) {
          return;
        }
        node = create(NodeKind::kGpu);
        gpu_by_id.emplace(from.id, node);
        const TopoGpu& of = topo.gpus[*gpu];
        out.gpus_.push_back({*gpu, of.dev, of.sm, of.gdr});
        break;
      }
      case TopoKind::kNic:
      case TopoKind::kVirtualNic: {
        const auto [known, fresh] = nic_by_id.emplace(from.id, kNoNode);
        if (fresh) {
          node = known->second = create(NodeKind::kNic);
          if (from.kind == TopoKind::kVirtualNic) {
            connect_both(above, node, PathType::kPix, kLocalGbs);
          }
        }
        add_nets(device, known->second);
        if (from.kind == TopoKind::kVirtualNic) {
          return;
        }
        break;
      }
      case TopoKind::kBridge:
      case TopoKind::kUnknown:
        node = create(NodeKind::kPci);
        nodes[node].model = from.model;
        pci_by_id.emplace(from.id, node);
        for (const std::size_t child : children[device]) {
          add_device(child, node, wanted, children);
        }
        break;
      case TopoKind::kOther:
        return;
    }
    node_of_device[device] = node;
    if (node != kNoNode) {
      connect_both(node, above, PathType::kPix, static_cast<float>(from.bytes_per_s / kGiga));
    }
  }

  [[nodiscard]] std::uint32_t find_cpu(std::uint32_t node, std::uint32_t from) const {
    if (nodes[node].kind == NodeKind::kCpu) {
      return node;
    }
    for (const Edge& link : nodes[node].links) {
      const NodeKind kind = nodes[link.to].kind;
      if (link.type == PathType::kPix && link.to != from &&
          (kind == NodeKind::kPci || kind == NodeKind::kCpu)) {
        const std::uint32_t cpu = find_cpu(link.to, node);
        if (cpu != kNoNode) {
          return cpu;
        }
      }
    }
    return kNoNode;
  }

  void add_gpu_links() {
    // The document's order, as elsewhere.
    for (std::size_t device = 0; device < topo.devices.size(); ++device) {
      const std::uint32_t node = node_of_device[device];
      if (node == kNoNode || nodes[node].kind != NodeKind::kGpu) {
        continue;
      }
      const auto gpu = std::find_if(topo.gpus.begin(), topo.gpus.end(),
                                    [&](const TopoGpu& one) { return one.device == device; });
      for (const TopoNvlink& link : gpu->links) {
        add_nvlink(node, *gpu, link);
      }
    }
    for (const Gpu& gpu : out.gpus_) {
      const TopoGpu& of = topo.gpus[gpu.topo];
      if (of.c2c_bytes_per_s > 0) {
        const std::uint32_t node = node_of_device[of.device];
        connect_both(node, find_cpu(node, kNoNode), PathType::kC2c,
                     static_cast<float>(of.c2c_bytes_per_s / kGiga));
      }
    }
  }

  void add_nvlink(std::uint32_t node, const TopoGpu& gpu, const TopoNvlink& link) {
    std::uint32_t peer = kNoNode;
    switch (link.to) {
      case TopoNvlink::To::kGpu: {
        const auto found = gpu_by_id.find(link.target);
        peer = found == gpu_by_id.end() ? kNoNode : found->second;
        break;
      }
      case TopoNvlink::To::kCpu:
        peer = find_cpu(node, kNoNode);
        break;
      case TopoNvlink::To::kSwitch:
        if (nvswitch == kNoNode) {
          nvswitch = create(NodeKind::kSwitch);
        }
        peer = nvswitch;
        break;
    }
    if (peer == kNoNode) {
      return;
    }
    const float gbs = static_cast<float>(link.count) * nvlink_gbs(gpu.sm);
    connect(node, peer, PathType::kNvl, gbs);
    if (link.to != TopoNvlink::To::kGpu) {
      connect(peer, node, PathType::kNvl, gbs);
    }
  }

  void add_bridge_links() {
    for (const TopoDevice& device : topo.devices) {
      for (const std::uint64_t peer : device.peers) {
        const auto a = pci_by_id.find(device.id);
        const auto b = pci_by_id.find(peer);
        // One that its other end does not list cannot be travelled back.
        const bool mutual =
            std::any_of(topo.devices.begin(), topo.devices.end(), [&](const TopoDevice& other) {
              return other.id == peer && std::find(other.peers.begin(), other.peers.end(),
                                                   device.id) != other.peers.end();
            });
        if (a != pci_by_id.end() && b != pci_by_id.end() && mutual) {
          connect(a->second, b->second, PathType::kLoc, kLocalGbs);
        }
      }
    }
  }

  void flatten_broadcom() {
    for (std::uint32_t at = 0; at < nodes.size(); ++at) {
      const int generation = nodes[at].kind == NodeKind::kPci && !nodes[at].removed
                                 ? broadcom_generation(nodes[at].model, 0)
                                 : 0;
      if (generation == 0) {
        continue;
      }
      std::vector<std::uint32_t> below;
      auto& links = nodes[at].links;
      links.erase(std::remove_if(links.begin(), links.end(),
                                 [&](const Edge& link) {
                                   const Draft& sub = nodes[link.to];
                                   if (sub.kind != NodeKind::kPci ||
                                       broadcom_generation(sub.model, 1) != generation) {
                                     return false;
                                   }
                                   below.push_back(link.to);
                                   return true;
                                 }),
                  links.end());
      for (const std::uint32_t sub : below) {
        take_over(at, sub);
      }
      nodes[at].model |= 0xFFFF;  // done: never flattened again
      at = kNoNode;               // what was looked at before may match now
    }
  }

  void take_over(std::uint32_t parent, std::uint32_t sub) {
    for (const Edge& link : nodes[sub].links) {
      if (link.to == parent) {
        continue;
      }
      nodes[parent].links.push_back(link);
      for (Edge& back : nodes[link.to].links) {
        if (back.to == sub) {
          back.to = parent;
          break;
        }
      }
    }
    nodes[sub].links.clear();
    nodes[sub].removed = true;
    for (Draft& other : nodes) {
      other.links.erase(std::remove_if(other.links.begin(), other.links.end(),
                                       [sub](const Edge& link) { return link.to == sub; }),
                        other.links.end());
    }
  }

  void connect_cpus() {
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      for (std::size_t j = 0; j < cpus.size(); ++j) {
        if (i != j) {
          connect(cpus[i], cpus[j], PathType::kSys,
                  static_cast<float>(topo.cpus[i].to_cpu_bytes_per_s / kGiga));
        }
      }
    }
  }

  void put_way_up_last(std::uint32_t node, std::uint32_t above) {
    auto& links = nodes[node].links;
    if (above != kNoNode) {
      const auto up = std::find_if(links.begin(), links.end(),
                                   [above](const Edge& link) { return link.to == above; });
      if (up != links.end()) {
        std::rotate(up, up + 1, links.end());
      }
    }
    for (std::size_t l = 0; l < links.size(); ++l) {
      if (links[l].type == PathType::kPix && links[l].to != above) {
        put_way_up_last(links[l].to, node);
      }
    }
  }

  void build(const std::vector<std::uint32_t>& wanted) {
    node_of_device.assign(topo.devices.size(), kNoNode);
    std::vector<std::vector<std::size_t>> children(topo.devices.size());
    for (std::size_t i = 0; i < topo.devices.size(); ++i) {
      if (topo.devices[i].parent >= 0) {
        children[static_cast<std::size_t>(topo.devices[i].parent)].push_back(i);
      }
    }
    std::size_t next = 0;
    for (std::uint32_t cpu = 0; cpu < topo.cpus.size(); ++cpu) {
      cpus.push_back(create(NodeKind::kCpu));
      out.hosts_.push_back(tapas::solver::host_of(topo.cpus[cpu]));
      for (; next < topo.devices.size() && topo.devices[next].cpu == cpu; ++next) {
        if (topo.devices[next].parent < 0) {
          add_device(next, cpus.back(), wanted, children);
        }
      }
    }
    add_gpu_links();
    add_bridge_links();
    flatten_broadcom();
    connect_cpus();
    for (const std::uint32_t cpu : cpus) {
      put_way_up_last(cpu, kNoNode);
    }
    finish();
  }

  void finish() {
    std::vector<std::uint32_t> final_node(nodes.size(), kNoNode);
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i].removed) {
        final_node[i] = static_cast<std::uint32_t>(out.nodes_.size());
        auto& same = out.of_kind_[at(nodes[i].kind)];
        out.nodes_.push_back({nodes[i].kind, static_cast<std::uint32_t>(same.size()), {}});
        same.push_back(final_node[i]);
      }
    }
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      for (const Edge& link : nodes[i].links) {
        out.nodes_[final_node[i]].links.push_back(static_cast<std::uint32_t>(out.links_.size()));
        out.links_.push_back({final_node[i], final_node[link.to], link.type, link.gbs});
      }
    }
    out.reverse_.assign(out.links_.size(), kNoNode);
    for (std::uint32_t l = 0; l < out.links_.size(); ++l) {
      const Link& link = out.links_[l];
      for (const std::uint32_t back : out.nodes_[link.to].links) {
        if (out.links_[back].to == link.from && out.links_[back].type == link.type) {
          out.reverse_[l] = back;
          break;
        }
      }
    }
  }
};

TopoSystem::TopoSystem(const NcclTopo& topo, const std::vector<std::uint32_t>& gpus) {
  Builder builder{topo, *this, {}, {}, {}, {}, {}, {}, kNoNode};
  builder.build(gpus);
  TAPAS_CHECK(gpus_.size() == gpus.size(), "GPUs of a topology that it does not hold");
  compute_paths();
}

int TopoSystem::min_sm() const {
  return std::min_element(gpus_.begin(), gpus_.end(),
                          [](const Gpu& a, const Gpu& b) { return a.sm < b.sm; })
      ->sm;
}

bool TopoSystem::same_sm() const {
  return std::all_of(gpus_.begin(), gpus_.end(),
                     [this](const Gpu& gpu) { return gpu.sm == gpus_.front().sm; });
}

namespace {

/// NCCL's rule for "local": the widest path, then the nearest type. A path without rate never is.
template <typename PathTo>
std::vector<std::uint32_t> local(std::size_t count, const PathTo& path_to) {
  std::vector<std::uint32_t> best;
  float gbs = 0;
  PathType type = PathType::kDis;
  for (std::uint32_t i = 0; i < count; ++i) {
    const TopoSystem::Path& path = path_to(i);
    if (path.gbs > gbs || (path.gbs == gbs && path.type < type)) {
      gbs = path.gbs;
      type = path.type;
      best.clear();
    }
    if (path.gbs == gbs && path.type == type) {
      best.push_back(i);
    }
  }
  return best;
}

}  // namespace

void TopoSystem::find_local_nets(std::size_t gpu) {
  local_nets_[gpu] = local(nets_.size(), [&](std::uint32_t n) -> const Path& {
    return path(NodeKind::kGpu, gpu, NodeKind::kNet, n);
  });
}

void TopoSystem::find_local_gpus(std::size_t net) {
  local_gpus_[net] = local(gpus_.size(), [&](std::uint32_t g) -> const Path& {
    return path(NodeKind::kNet, net, NodeKind::kGpu, g);
  });
}

std::uint32_t TopoSystem::nets_per_gpu(std::size_t gpu) const {
  const auto count = static_cast<std::uint32_t>(local_nets_[gpu].size());
  const auto sharing = static_cast<std::uint32_t>(local_gpus_[local_nets_[gpu].front()].size());
  return sharing == 0 ? count : (count + sharing - 1) / sharing;
}

std::uint32_t TopoSystem::net_of_gpu(std::size_t gpu, std::uint32_t channel) const {
  const std::vector<std::uint32_t>& nets = local_nets_[gpu];
  const auto count = static_cast<std::uint32_t>(nets.size());
  auto pick = static_cast<std::uint32_t>(std::max(0, gpus_[gpu].dev));
  if ((count & (count - 1)) == 0) {
    std::uint32_t mirrored = 0;
    for (std::uint32_t bit = 1, mirror = count / 2; bit < count; bit *= 2, mirror /= 2) {
      mirrored |= (pick & bit) != 0 ? mirror : 0;
    }
    pick = mirrored;
  }
  return nets_[nets[(pick + channel % nets_per_gpu(gpu)) % count]].same_as;
}

int TopoSystem::gpu_served_by(std::size_t net) const {
  std::uint32_t channels = 0;
  for (const std::uint32_t gpu : local_gpus_[net]) {
    if (!local_nets_[gpu].empty()) {
      channels = std::max(channels, nets_per_gpu(gpu));
    }
  }
  for (std::uint32_t channel = 0; channel < std::min(channels, kMaxChannels); ++channel) {
    for (const std::uint32_t gpu : local_gpus_[net]) {
      if (!local_nets_[gpu].empty() && net_of_gpu(gpu, channel) == nets_[net].same_as) {
        return static_cast<int>(gpu);
      }
    }
  }
  return -1;
}

std::size_t TopoSystem::local_cpu(std::size_t gpu) const {
  std::size_t best = 0;
  int hops = 0;
  for (std::size_t c = 0; c < count(NodeKind::kCpu); ++c) {
    const int there = path(NodeKind::kGpu, gpu, NodeKind::kCpu, c).hops();
    if (there > 0 && (hops == 0 || there < hops)) {
      best = c;
      hops = there;
    }
  }
  return best;
}

void TopoSystem::paths_to(NodeKind kind, std::size_t index) {
  struct Reached {
    std::uint32_t next = kNoNode;  ///< link towards the base
    int hops = 0;
    float gbs = 0;
    PathType type = PathType::kDis;
  };
  const std::uint32_t base = of_kind_[at(kind)][index];
  std::vector<Reached> reached(nodes_.size());
  reached[base] = {kNoNode, 0, kLocalGbs, PathType::kLoc};
  std::vector<std::uint32_t> level{base};
  while (!level.empty()) {
    std::vector<std::uint32_t> next_level;
    for (const std::uint32_t node : level) {
      const Reached from = reached[node];
      for (const std::uint32_t l : nodes_[node].links) {
        const Link& link = links_[l];
        Reached& to = reached[link.to];
        const NodeKind to_kind = nodes_[link.to].kind;
        // Through a GPU one hop of NVLink to another GPU only.
        if (node != base && nodes_[node].kind == NodeKind::kGpu &&
            (link.type != PathType::kNvl || to_kind != NodeKind::kGpu || from.hops > 1)) {
          continue;
        }
        const float gbs = std::min(from.gbs, link.gbs);
        if (!((to.gbs == 0 || to.hops > from.hops) && to.gbs < gbs) || reverse_[l] == kNoNode) {
          continue;
        }
        PathType type = link.type == PathType::kNet ? PathType::kLoc : link.type;
        if (nodes_[node].kind == NodeKind::kPci && to_kind == NodeKind::kPci) {
          type = PathType::kPxb;
        }
        if (link.type == PathType::kPix &&
            (nodes_[node].kind == NodeKind::kCpu || to_kind == NodeKind::kCpu)) {
          type = PathType::kPhb;
        }
        if (nodes_[node].kind == NodeKind::kGpu && from.type == PathType::kNvl &&
            type == PathType::kNvl && from.hops > 0) {
          type = PathType::kNvb;
        }
        to = {reverse_[l], from.hops + 1, gbs, std::max(from.type, type)};
        if (std::find(next_level.begin(), next_level.end(), link.to) == next_level.end()) {
          next_level.push_back(link.to);
        }
      }
    }
    level = std::move(next_level);
  }
  for (const NodeKind from : {NodeKind::kGpu, NodeKind::kSwitch, NodeKind::kCpu, NodeKind::kNet}) {
    for (std::size_t i = 0; i < count(from); ++i) {
      std::uint32_t node = of_kind_[at(from)][i];
      Path& path = mutable_path(from, i, kind, index);
      path.gbs = reached[node].gbs;
      path.type = reached[node].type;
      for (int hop = reached[node].hops; hop > 0; --hop) {
        path.links.push_back(reached[node].next);
        node = links_[reached[node].next].to;
      }
    }
  }
}

void TopoSystem::go_through(NodeKind over, std::size_t k, NodeKind from, std::size_t i, NodeKind to,
                            std::size_t j) {
  const Path& first = path(from, i, over, k);
  const Path& second = path(over, k, to, j);
  Path joined = first;
  joined.links.insert(joined.links.end(), second.links.begin(), second.links.end());
  joined.gbs = std::min(first.gbs, second.gbs);
  joined.type = std::max(first.type, second.type);
  if (joined.type == PathType::kPhb && std::min(first.type, second.type) == PathType::kC2c) {
    joined.type = PathType::kP2c;
  }
  if (over == NodeKind::kGpu) {
    joined.type = PathType::kPxn;
  }
  mutable_path(from, i, to, j) = std::move(joined);
  if (to == NodeKind::kNet && from == NodeKind::kGpu) {
    find_local_nets(i);
  } else if (from == NodeKind::kNet) {
    find_local_gpus(i);
  }
}

void TopoSystem::avoid_distant_peers(std::size_t gpu) {
  const PathType farthest =
      host() == Host::kAmd && gpus_.size() <= 2 ? PathType::kSys : PathType::kPxb;
  for (std::size_t peer = 0; peer < gpus_.size(); ++peer) {
    if (path(NodeKind::kGpu, peer, NodeKind::kGpu, gpu).type > farthest) {
      go_through(NodeKind::kCpu, local_cpu(gpu), NodeKind::kGpu, peer, NodeKind::kGpu, gpu);
    }
  }
}

void TopoSystem::reach_nics_by_chip_link() {
  for (std::size_t n = 0; n < nets_.size(); ++n) {
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      const std::size_t cpu = local_cpu(g);
      const PathType a = path(NodeKind::kGpu, g, NodeKind::kCpu, cpu).type;
      const PathType b = path(NodeKind::kNet, n, NodeKind::kCpu, cpu).type;
      if (std::max(a, b) == PathType::kPhb && std::min(a, b) == PathType::kC2c) {
        Path& out = mutable_path(NodeKind::kGpu, g, NodeKind::kNet, n);
        Path& in = mutable_path(NodeKind::kNet, n, NodeKind::kGpu, g);
        out.type = std::min(out.type, PathType::kP2c);
        in.type = std::min(in.type, PathType::kP2c);
      }
    }
  }
}

bool TopoSystem::gdr_works(std::size_t gpu, std::size_t net) const {
  if (!nets_[net].gdr || !gpus_[gpu].gdr) {
    return false;
  }
  const Path* way = &path(NodeKind::kGpu, gpu, NodeKind::kNet, net);
  if (way->type == PathType::kPxn) {
    for (const std::uint32_t l : way->links) {
      const Node& node = nodes_[links_[l].to];
      if (node.kind == NodeKind::kGpu) {
        way = &path(NodeKind::kGpu, node.index, NodeKind::kNet, net);
        break;
      }
    }
  }
  return way->type <= PathType::kPxb || way->type == PathType::kP2c;
}

void TopoSystem::reach_nic(std::size_t net, std::size_t gpu) {
  const int relay = gpu_served_by(nets_[net].same_as);
  if (relay >= 0 && static_cast<std::size_t>(relay) != gpu) {
    const auto r = static_cast<std::size_t>(relay);
    const Path& theirs = path(NodeKind::kGpu, r, NodeKind::kNet, net);
    const Path& own = path(NodeKind::kGpu, gpu, NodeKind::kNet, net);
    if (theirs.type <= PathType::kP2c &&
        path(NodeKind::kGpu, r, NodeKind::kGpu, gpu).type <= PathType::kNvl &&
        (theirs.gbs > own.gbs || own.type > PathType::kPxn)) {
      go_through(NodeKind::kGpu, r, NodeKind::kGpu, gpu, NodeKind::kNet, net);
    }
  }
  if (path(NodeKind::kGpu, gpu, NodeKind::kNet, net).type < PathType::kPhb &&
      !gdr_works(gpu, net)) {
    const std::size_t cpu = local_cpu(gpu);
    go_through(NodeKind::kCpu, cpu, NodeKind::kNet, net, NodeKind::kGpu, gpu);
    go_through(NodeKind::kCpu, cpu, NodeKind::kGpu, gpu, NodeKind::kNet, net);
  }
}

void TopoSystem::compute_paths() {
  constexpr NodeKind kEnds[] = {NodeKind::kCpu, NodeKind::kGpu, NodeKind::kNet, NodeKind::kSwitch};
  for (const NodeKind from : kEnds) {
    for (const NodeKind to : kEnds) {
      paths_[at(from)][at(to)].resize(count(from) * count(to));
    }
  }
  for (const NodeKind kind : kEnds) {
    for (std::size_t i = 0; i < count(kind); ++i) {
      // NCCL finds interfaces by their dev: of several with one, only the first is ever reached.
      if (kind != NodeKind::kNet || nets_[i].same_as == i) {
        paths_to(kind, i);
      }
    }
  }
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    avoid_distant_peers(g);
  }
  reach_nics_by_chip_link();
  local_nets_.resize(gpus_.size());
  local_gpus_.resize(nets_.size());
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    find_local_nets(g);
  }
  for (std::size_t n = 0; n < nets_.size(); ++n) {
    find_local_gpus(n);
  }
  for (std::size_t n = 0; n < nets_.size(); ++n) {
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      reach_nic(n, g);
    }
  }
  for (std::size_t n = 0; n < nets_.size(); ++n) {
    nets_[n].local_gpu = gpu_served_by(nets_[n].same_as);
  }
}

}  // namespace tapas::solver
