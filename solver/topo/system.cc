#include "solver/topo/system.h"

#include "base/check.h"
#include "solver/topo/link_rates.h"

#include <algorithm>

namespace tapas::solver {
namespace {

constexpr std::uint32_t kMaxChannels = 64;

}  // namespace

TopoSystem::TopoSystem(const NcclTopo& topo, const std::vector<std::uint32_t>& gpus) {
  build(topo, gpus);
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
    std::uint32_t next = kNone;  ///< link towards the base
    int hops = 0;
    float gbs = 0;
    PathType type = PathType::kDis;
  };
  const std::uint32_t base = of_kind_[at(kind)][index];
  std::vector<Reached> reached(nodes_.size());
  reached[base] = {kNone, 0, kLocalGbs, PathType::kLoc};
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
        if (!((to.gbs == 0 || to.hops > from.hops) && to.gbs < gbs) || reverse_[l] == kNone) {
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
