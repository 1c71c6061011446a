#include "solver/topo/channel_search.h"

#include <algorithm>

namespace tapas::solver {

/// Upper bound on the channels that can enter by the interfaces at this rate.
int ChannelSearch::most_channels_from_nets() const {
  const float rate = now_.inter;
  const auto whole = static_cast<float>(static_cast<int>(rate));
  const auto fitting = [rate](float gbs) {
    return static_cast<int>(std::min(gbs / rate + .001F, 1e6F));
  };
  std::map<std::uint32_t, int> by_card;  // ports of a card share its PCIe link
  for (std::uint32_t n = 0; n < system_.nets().size(); ++n) {
    const TopoSystem::Path* way = nullptr;
    for (std::size_t g = 0; g < used_.size() && way == nullptr; ++g) {
      const TopoSystem::Path& path = system_.path(NodeKind::kNet, n, NodeKind::kGpu, g);
      way = path.type <= now_.type_inter && path.hops() >= 2 ? &path : nullptr;
    }
    if (way != nullptr) {
      const float gbs = system_.nets()[n].gbs;
      int count = fitting(gbs);
      if (whole > 0) {
        count = std::min(count, static_cast<int>(gbs / whole));
      }
      by_card[way->links[1]] += count;
    }
  }
  int most = 0;
  for (const auto& [link, count] : by_card) {
    most += std::min(count, fitting(system_.links()[link].gbs));
  }
  return most;
}

/// Upper bound on the channels at this rate: what GPUs can receive and interfaces deliver.
int ChannelSearch::most_channels() const {
  int most = now_.max_channels;
  if (now_.pattern == Pattern::kNvls) {
    return between_nodes_ ? std::min(most, static_cast<int>(system_.nets().size())) : most;
  }
  if (between_nodes_) {
    most = std::min(most, most_channels_from_nets());
  }
  const float rate = between_nodes_ ? std::min(now_.intra, now_.inter) : now_.intra;
  const bool nvlink_only = now_.type_intra <= PathType::kNvb;
  int least = most;
  int by_nvlink = 0;
  int total = 0;
  const auto fitting = [](float gbs, float each) {
    return static_cast<int>(std::min(gbs / each + .001F, 1e6F));
  };
  for (const TopoSystem::Node& node : system_.nodes()) {
    if (node.kind != NodeKind::kGpu) {
      continue;
    }
    float in = 0;
    float in_nvlink = 0;
    for (const std::uint32_t l : node.links) {
      const float gbs = system_.links()[system_.reverse(l)].gbs;
      in += gbs;
      in_nvlink += system_.links()[l].type == PathType::kNvl ? gbs : 0;
    }
    least = std::min(least, fitting(in, rate));
    total += fitting(in, now_.intra);
    by_nvlink += fitting(in_nvlink, now_.intra);
  }
  if (gpus_ == 1) {
    return least;
  }
  // A chain has one receiver less than GPUs, unless it comes from the network or goes round.
  if (between_nodes_ || now_.pattern == Pattern::kRing) {
    most = least;
  }
  const int receivers = !between_nodes_ && now_.pattern == Pattern::kRing ? gpus_ : gpus_ - 1;
  return std::min(most, (nvlink_only ? by_nvlink : total) / receivers);
}

/// Lower bound on the hops of one channel.
int ChannelSearch::fewest_hops() const {
  const auto fewest = [&](NodeKind from, NodeKind to) {
    int least = 0;
    for (std::size_t i = 0; i < system_.count(from); ++i) {
      for (std::size_t j = 0; j < system_.count(to); ++j) {
        const TopoSystem::Path& path = system_.path(from, i, to, j);
        if (path.hops() > 0 && (least == 0 || path.hops() < least)) {
          least = path.hops();
        }
      }
    }
    return least;
  };
  const int inside = fewest(NodeKind::kGpu, NodeKind::kGpu);
  if (!between_nodes_) {
    return inside * (now_.pattern == Pattern::kRing ? gpus_ : gpus_ - 1);
  }
  const int out = fewest(NodeKind::kGpu, NodeKind::kNet);
  return inside * (gpus_ - 1) + fewest(NodeKind::kNet, NodeKind::kGpu) +
         (now_.pattern == Pattern::kBalancedTree ? 2 * out : out);
}

/// False: by the bounds above no attempt of this shape can be better than what is there.
bool ChannelSearch::improvable() const {
  const int most = most_channels();
  if (most < now_.min_channels) {
    return false;
  }
  const auto now = static_cast<float>(most);
  const auto then = static_cast<float>(best_.channels);
  if (now_.pattern == Pattern::kNvls) {
    return most > best_.channels || now * now_.inter > then * best_.inter;
  }
  if (now * now_.intra != then * best_.intra) {
    return now * now_.intra > then * best_.intra;
  }
  return now_.pattern == best_.pattern && now_.cross_nic == best_.cross_nic &&
         hops_before_ + now * static_cast<float>(fewest_hops()) < best_.hops;
}

/// True: an attempt with the same reach was made, and would only repeat itself.
bool ChannelSearch::seen_before() {
  const auto reach = [&](NodeKind from, NodeKind to, PathType limit) {
    PathType type = PathType::kLoc;
    for (std::size_t i = 0; i < system_.count(from); ++i) {
      for (std::size_t j = 0; j < system_.count(to); ++j) {
        const PathType there = system_.path(from, i, to, j).type;
        type = there <= limit ? std::max(type, there) : type;
      }
    }
    return type;
  };
  const PathType intra = reach(NodeKind::kGpu, NodeKind::kGpu, now_.type_intra);
  const PathType inter = std::max(reach(NodeKind::kGpu, NodeKind::kNet, now_.type_inter),
                                  reach(NodeKind::kNet, NodeKind::kGpu, now_.type_inter));
  const std::array<float, 7> key{static_cast<float>(now_.pattern),
                                 static_cast<float>(now_.cross_nic),
                                 now_.same_channels ? 1.0F : 0.0F,
                                 now_.intra,
                                 now_.inter,
                                 static_cast<float>(intra),
                                 static_cast<float>(inter)};
  const auto [made, fresh] = made_.emplace(key, 0);
  if (!fresh) {
    budget_ = made->second;
    return true;
  }
  last_made_ = &made->second;
  return false;
}

}  // namespace tapas::solver
