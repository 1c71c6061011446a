#include "solver/topo/link_rates.h"
#include "solver/topo/system.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace tapas::solver {
namespace {

constexpr double kGiga = 1e9;

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
  std::uint32_t nvswitch = kNone;

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
    std::uint32_t node = kNone;
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
        const auto [known, fresh] = nic_by_id.emplace(from.id, kNone);
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
    if (node != kNone) {
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
        if (cpu != kNone) {
          return cpu;
        }
      }
    }
    return kNone;
  }

  void add_gpu_links() {
    // The document's order, as elsewhere.
    for (std::size_t device = 0; device < topo.devices.size(); ++device) {
      const std::uint32_t node = node_of_device[device];
      if (node == kNone || nodes[node].kind != NodeKind::kGpu) {
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
        connect_both(node, find_cpu(node, kNone), PathType::kC2c,
                     static_cast<float>(of.c2c_bytes_per_s / kGiga));
      }
    }
  }

  void add_nvlink(std::uint32_t node, const TopoGpu& gpu, const TopoNvlink& link) {
    std::uint32_t peer = kNone;
    switch (link.to) {
      case TopoNvlink::To::kGpu: {
        const auto found = gpu_by_id.find(link.target);
        peer = found == gpu_by_id.end() ? kNone : found->second;
        break;
      }
      case TopoNvlink::To::kCpu:
        peer = find_cpu(node, kNone);
        break;
      case TopoNvlink::To::kSwitch:
        if (nvswitch == kNone) {
          nvswitch = create(NodeKind::kSwitch);
        }
        peer = nvswitch;
        break;
    }
    if (peer == kNone) {
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
      at = kNone;                 // what was looked at before may match now
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
    if (above != kNone) {
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
    node_of_device.assign(topo.devices.size(), kNone);
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
      put_way_up_last(cpu, kNone);
    }
    finish();
  }

  void finish() {
    std::vector<std::uint32_t> final_node(nodes.size(), kNone);
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
    out.reverse_.assign(out.links_.size(), kNone);
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

void TopoSystem::build(const NcclTopo& topo, const std::vector<std::uint32_t>& gpus) {
  Builder builder{topo, *this, {}, {}, {}, {}, {}, {}, kNone};
  builder.build(gpus);
}

}  // namespace tapas::solver
