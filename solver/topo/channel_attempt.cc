#include "solver/topo/channel_search.h"

#include <algorithm>
#include <tuple>

namespace tapas::solver {
namespace {

constexpr int kStepsPciOrder = 1 << 10;

}  // namespace

/// Takes `gbs` off the path's first links, negative to give back. Returns how many links had it.
int ChannelSearch::take(const TopoSystem::Path& path, bool from_gpu, int links, float gbs) {
  float pci_gbs = gbs;
  if (path.type == PathType::kPhb && from_gpu) {
    for (const std::uint32_t l : path.links) {
      if ((traits_[l] & kToIntel) != 0) {
        // Small packets through the root complex: six parts for five.
        pci_gbs = gbs * 6 / 5;
      }
    }
  }
  const auto subtract = [](float& from, float what) {
    // To thousandths, or giving back would not restore what was there. Never negative.
    from = static_cast<float>(static_cast<int>((from - what) * 1000 + .5F)) / 1000;
  };
  for (int i = 0; i < links; ++i) {
    const std::uint32_t l = path.links[static_cast<std::size_t>(i)];
    const unsigned traits = traits_[l];
    const float forward = (traits & kPci) != 0 ? pci_gbs : gbs;
    float& left = left_[l];
    if ((traits & kTwoWay) == 0) {
      if (left < forward) {
        return i;
      }
      subtract(left, forward);
      continue;
    }
    float backward = 0;
    if ((traits & kToOldGpu) != 0 && !from_gpu) {
      backward += forward / 8;  // acknowledgements
    }
    if ((traits & kToPower) != 0) {
      backward += forward;
    }
    float& back = left_[system_.reverse(l)];
    if (left < forward || (backward != 0 && back < backward)) {
      return i;
    }
    subtract(left, forward);
    if (backward != 0) {
      subtract(back, backward);
    }
  }
  return links;
}

/// Uses a path `times` the channel's rate; -times gives it back. False: too far or too narrow.
bool ChannelSearch::follow(NodeKind from, int i, NodeKind to, int j, float times) {
  const auto a = static_cast<std::size_t>(i);
  const auto b = static_cast<std::size_t>(j);
  const TopoSystem::Path& path = system_.path(from, a, to, b);
  const bool inside = from != NodeKind::kNet && to != NodeKind::kNet;
  const PathType limit = inside ? now_.type_intra : now_.type_inter;
  const bool tree = now_.pattern == Pattern::kBalancedTree || now_.pattern == Pattern::kTree;
  if (path.type >= PathType::kDis || (times == 1 && path.type > limit) ||
      (times == 1 && tree && system_.path(to, b, from, a).type > limit)) {
    return false;
  }
  const float gbs = (inside ? now_.intra : now_.inter) * times;
  const bool from_gpu = from == NodeKind::kGpu;
  const int reached = take(path, from_gpu, path.hops(), gbs);
  if (reached < path.hops()) {
    take(path, from_gpu, reached, -gbs);
    return false;
  }
  now_.hops += times * static_cast<float>(path.hops());
  return true;
}

/// Interfaces to try: those that GPUs prefer, then all others that are near enough. gpu -1: for
/// any.
const std::vector<std::uint32_t>& ChannelSearch::nets_for(int gpu) {
  if (nets_for_type_ != now_.type_inter || nets_for_.empty()) {
    nets_for_type_ = now_.type_inter;
    nets_for_.assign(used_.size() + 1, {});
  }
  auto& found = nets_for_[gpu < 0 ? used_.size() : static_cast<std::size_t>(gpu)];
  if (!found.empty()) {
    return found;
  }
  const std::size_t first = gpu < 0 ? 0 : static_cast<std::size_t>(gpu);
  const std::size_t end = gpu < 0 ? used_.size() : first + 1;
  const auto add = [&found](std::uint32_t net) {
    if (std::find(found.begin(), found.end(), net) == found.end()) {
      found.push_back(net);
    }
  };
  for (std::size_t g = first; g < end; ++g) {
    if (system_.local_nets(g).empty()) {
      continue;
    }
    const std::uint32_t own = system_.net_of_gpu(g, 0);
    add(own);
    for (std::uint32_t c = 1; c < kMaxTopoChannels; ++c) {
      const std::uint32_t net = system_.net_of_gpu(g, c);
      if (net == own) {
        break;
      }
      add(net);
    }
  }
  for (PathType type = PathType::kLoc; type <= now_.type_inter; type = next_type(type)) {
    for (std::size_t g = first; g < end; ++g) {
      const std::size_t count = std::min<std::size_t>(system_.nets().size(), kMaxTopoChannels);
      for (std::uint32_t n = 0; n < count; ++n) {
        if (system_.path(NodeKind::kGpu, g, NodeKind::kNet, n).type == type) {
          add(n);
        }
      }
    }
  }
  return found;
}

bool ChannelSearch::net_fits(std::uint32_t first, std::uint32_t net, int step) const {
  const TopoSystem::Net& a = system_.nets()[first];
  const TopoSystem::Net& b = system_.nets()[net];
  const bool same = a.same_as == b.same_as;
  if (now_.pattern == Pattern::kTree && !same) {
    return false;
  }
  if (now_.pattern == Pattern::kRing && now_.cross_nic == 2) {
    // Channels in pairs: the second leaves where the first came in.
    if ((now_.channels & 1) != 0 && b.same_as != nets(now_.channels - 1)[0]) {
      return false;
    }
  } else if (now_.cross_nic == 0 && (a.card != b.card || a.port != b.port)) {
    return false;
  }
  return now_.pattern != Pattern::kBalancedTree || step == 0 || b.same_as == nets(now_.channels)[1];
}

bool ChannelSearch::is_free(int gpu) const {
  return (used_[static_cast<std::size_t>(gpu)] >> static_cast<unsigned>(now_.channels) & 1U) == 0;
}

/// A switch serves few peers best: neighbours only.
void ChannelSearch::neighbours(int gpu, Gpus& out) const {
  const int before = (gpu - 1 + gpus_) % gpus_;
  const int after = (gpu + 1) % gpus_;
  std::array<int, 2> wanted{after, before};  // the last comes first
  const std::size_t count = now_.pattern == Pattern::kTree || before == after ? 1 : 2;
  if (now_.pattern == Pattern::kBalancedTree) {
    wanted = {before, after};
  }
  for (std::size_t i = count; i-- > 0;) {
    const auto peer = static_cast<std::size_t>(wanted[i]);
    if (is_free(wanted[i]) &&
        system_.path(NodeKind::kGpu, static_cast<std::size_t>(gpu), NodeKind::kGpu, peer).hops() >
            0) {
      out.add(wanted[i]);
    }
  }
}

/// By bandwidth, then hops, then number, counted on from this GPU.
void ChannelSearch::rank_peers() {
  peers_.resize(used_.size());
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    std::vector<Peer>& peers = peers_[static_cast<std::size_t>(gpu)];
    for (int i = 1; i < gpus_; ++i) {
      const int g = (gpu + i) % gpus_;
      const TopoSystem::Path& path = system_.path(NodeKind::kGpu, static_cast<std::size_t>(gpu),
                                                  NodeKind::kGpu, static_cast<std::size_t>(g));
      if (path.hops() > 0) {
        peers.push_back({g, path.hops(), static_cast<int>(path.gbs)});
      }
    }
    std::stable_sort(peers.begin(), peers.end(), [](const Peer& a, const Peer& b) {
      return std::tuple(-a.gbs, a.hops) < std::tuple(-b.gbs, b.hops);
    });
  }
}

/// GPUs to try after this one, best first.
void ChannelSearch::next_gpus(int gpu, Toward toward, Gpus& out) const {
  if (system_.has_switch()) {
    neighbours(gpu, out);
    return;
  }
  const Peer* first = nullptr;
  bool alike = true;
  // What a GPU's way from the network is worth comes before how near it is.
  std::array<std::array<int, 3>, kMaxTopoGpus> keys;
  for (const Peer& peer : peers_[static_cast<std::size_t>(gpu)]) {
    if (!is_free(peer.gpu)) {
      continue;
    }
    first = first == nullptr ? &peer : first;
    alike = alike && peer.gbs == first->gbs && peer.hops == first->hops;
    out.add(peer.gpu);
    if (toward == Toward::kNothing) {
      continue;
    }
    const std::array<int, 3> key = net_key(peer.gpu);
    int at = out.count - 1;
    for (; at > 0 && key < keys[static_cast<std::size_t>(at - 1)]; --at) {
      keys[static_cast<std::size_t>(at)] = keys[static_cast<std::size_t>(at - 1)];
      out.gpu[static_cast<std::size_t>(at)] = out.gpu[static_cast<std::size_t>(at - 1)];
    }
    keys[static_cast<std::size_t>(at)] = key;
    out.gpu[static_cast<std::size_t>(at)] = peer.gpu;
  }
  if (toward == Toward::kAwayFromNet && alike) {
    std::reverse(out.begin(), out.end());
  }
}

/// Smaller is better.
std::array<int, 3> ChannelSearch::net_key(int gpu) const {
  const auto g = static_cast<std::size_t>(gpu);
  const TopoSystem::Path& path =
      system_.path(NodeKind::kNet, nets(now_.channels)[0], NodeKind::kGpu, g);
  int pci_gbs = -1;
  if (const int l = pci_link_[g]; l >= 0) {
    const auto up = static_cast<std::uint32_t>(l);
    pci_gbs = static_cast<int>(std::min(left_[up], left_[system_.reverse(up)]));
  }
  return {-static_cast<int>(path.gbs), -pci_gbs, path.hops()};
}

bool ChannelSearch::better() const {
  if (now_.channels < now_.min_channels) {
    return false;
  }
  const auto now = static_cast<float>(now_.channels);
  const auto then = static_cast<float>(best_.channels);
  if (now_.pattern == Pattern::kNvls) {
    return (now_.channels > best_.channels && now_.channels <= gpus_) ||
           now * now_.inter > then * best_.inter;
  }
  if (now * now_.intra != then * best_.intra) {
    return now * now_.intra > then * best_.intra;
  }
  return now_.pattern == best_.pattern && now_.cross_nic == best_.cross_nic &&
         now_.hops < best_.hops;
}

void ChannelSearch::channel_done() {
  ++now_.channels;
  if (better()) {
    best_ = now_;
    if (now_.channels == now_.max_channels) {
      budget_ = kAlwaysPerfect;
    }
    settled_ = effort_ == SearchEffort::kPruned && !improvable();
  }
  if (now_.channels < now_.max_channels) {
    start();
  }
  --now_.channels;
}

bool ChannelSearch::try_gpu(NodeKind from, int index, int gpu, int step, int to_net, int to_first,
                            Order order) {
  if (index >= 0 && !follow(from, index, NodeKind::kGpu, gpu, 1)) {
    return false;
  }
  std::uint64_t& used = used_[static_cast<std::size_t>(gpu)];
  const std::uint64_t flag = 1ULL << static_cast<unsigned>(now_.channels);
  used ^= flag;
  go_on(gpu, step, to_net, to_first, order);
  used ^= flag;
  if (index >= 0) {
    follow(from, index, NodeKind::kGpu, gpu, -1);
  }
  return true;
}

void ChannelSearch::return_to_net(int gpu, int step, int to_first, Order order) {
  const std::uint32_t first = nets(now_.channels)[0];
  const bool balanced = now_.pattern == Pattern::kBalancedTree;
  const float rate = now_.inter;
  const std::vector<std::uint32_t>& candidates = nets_for(gpu);
  for (const std::uint32_t net : candidates) {
    if (!net_fits(first, net, step)) {
      continue;
    }
    // A balanced tree spreads its network traffic over its first two GPUs.
    const int next_to_net = balanced && step == 0 ? 1 : kNoStep;
    now_.inter = balanced ? rate / 2 : rate;
    const bool fits = follow(NodeKind::kGpu, gpu, NodeKind::kNet, static_cast<int>(net), 1);
    now_.inter = rate;
    if (!fits) {
      continue;
    }
    nets(now_.channels)[1] = system_.nets()[net].same_as;
    go_on(gpu, step, next_to_net, to_first, order);
    now_.inter = balanced ? rate / 2 : rate;
    follow(NodeKind::kGpu, gpu, NodeKind::kNet, static_cast<int>(net), -1);
    now_.inter = rate;
  }
}

/// All GPUs send to the switch and receive from it, the head twice as much.
void ChannelSearch::try_switch(int gpu) {
  int down = 0;
  int up = 0;
  const auto share = [gpu](int g) { return g == gpu ? 2.0F : 1.0F; };
  while (down < gpus_ && follow(NodeKind::kSwitch, 0, NodeKind::kGpu, down, share(down))) {
    ++down;
  }
  if (down == gpus_) {
    while (up < gpus_ && follow(NodeKind::kGpu, up, NodeKind::kSwitch, 0, share(up))) {
      ++up;
    }
    if (up == gpus_) {
      go_on(gpu, gpus_, kNoStep, kNoStep, Order::kFree);
    }
  }
  while (up > 0) {
    --up;
    follow(NodeKind::kGpu, up, NodeKind::kSwitch, 0, -share(up));
  }
  while (down > 0) {
    --down;
    follow(NodeKind::kSwitch, 0, NodeKind::kGpu, down, -share(down));
  }
}

void ChannelSearch::go_on(int gpu, int step, int to_net, int to_first, Order order) {
  if (budget_ <= 0 || settled_ || steps_ >= most_steps_) {
    return;
  }
  --budget_;
  ++steps_;
  if (step == gpus_) {
    channel_done();
    return;
  }
  place(now_.channels, step) = static_cast<std::uint32_t>(gpu);
  if (step == to_net) {
    if (between_nodes_) {
      return_to_net(gpu, step, to_first, order);
    }
  } else if (now_.pattern == Pattern::kNvls) {
    try_switch(gpu);
  } else if (step < gpus_ - 1) {
    Gpus following;
    if (order == Order::kPci) {
      following.add(step + 1);
    } else if (order == Order::kLikeLast) {
      following.add(static_cast<int>(place(now_.channels - 1, step + 1)));
    } else {
      const Toward toward = to_net == kNoStep    ? Toward::kNothing
                            : to_net == step + 1 ? Toward::kNet
                                                 : Toward::kAwayFromNet;
      next_gpus(gpu, toward, following);
    }
    for (const int after : following) {
      try_gpu(NodeKind::kGpu, gpu, after, step + 1, to_net, to_first, order);
    }
  } else if (step == to_first) {
    const int first = static_cast<int>(place(now_.channels, 0));
    if (follow(NodeKind::kGpu, gpu, NodeKind::kGpu, first, 1)) {
      go_on(first, step + 1, to_net, kNoStep, order);
      follow(NodeKind::kGpu, gpu, NodeKind::kGpu, first, -1);
    }
  } else {
    go_on(gpu, gpus_, kNoStep, kNoStep, order);
  }
}

void ChannelSearch::start_at_net_with(std::uint32_t net) {
  const int to_net = now_.pattern == Pattern::kRing ? gpus_ - 1 : 0;
  const int index = static_cast<int>(net);
  const int local = system_.nets()[net].local_gpu;
  if (now_.channels > 0 && now_.same_channels) {
    try_gpu(NodeKind::kNet, index, first_of_last(), 0, to_net, kNoStep, Order::kLikeLast);
    return;
  }
  if (now_.channels == 0 && !system_.has_switch()) {
    // A reference that costs little; its steps do not count.
    const int saved = budget_;
    budget_ = kStepsPciOrder;
    try_gpu(NodeKind::kNet, index, 0, 0, to_net, kNoStep, Order::kPci);
    budget_ = budget_ == kAlwaysPerfect ? kAlwaysPerfect : saved;
  }
  if (local >= 0) {
    try_gpu(NodeKind::kNet, index, local, 0, to_net, kNoStep, Order::kFree);
  }
  for (const std::uint32_t gpu : system_.local_gpus(net)) {
    if (static_cast<int>(gpu) != local) {
      try_gpu(NodeKind::kNet, index, static_cast<int>(gpu), 0, to_net, kNoStep, Order::kFree);
    }
  }
}

void ChannelSearch::start_at_net() {
  const auto rate = static_cast<float>(static_cast<int>(now_.inter));
  const bool heads = now_.pattern == Pattern::kNvls;
  const std::vector<std::uint32_t>& candidates = nets_for(-1);
  bool head_found = false;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (heads && head_found) {
      break;
    }
    const std::uint32_t net =
        candidates[(static_cast<std::size_t>(now_.channels) + i) % candidates.size()];
    const TopoSystem::Net& of = system_.nets()[net];
    if (net_left_[net] < rate) {
      continue;
    }
    if (now_.pattern == Pattern::kRing && now_.cross_nic == 2 && (now_.channels & 1) != 0 &&
        of.same_as != nets(now_.channels - 1)[1]) {
      continue;
    }
    nets(now_.channels)[0] = of.same_as;
    now_.latency_us = of.latency_us;
    const auto charge = [&](float gbs) {
      for (std::size_t n = 0; n < net_left_.size(); ++n) {
        if (system_.nets()[n].card == of.card && system_.nets()[n].port == of.port) {
          net_left_[n] -= gbs;
        }
      }
    };
    charge(rate);
    if (!heads) {
      start_at_net_with(net);
    } else if (now_.channels < static_cast<int>(candidates.size()) && of.local_gpu >= 0) {
      const auto head = static_cast<std::uint32_t>(of.local_gpu);
      bool taken = false;
      for (int c = 0; c < now_.channels; ++c) {
        taken = taken || place(c, 0) == head;
      }
      if (!taken) {
        try_gpu(NodeKind::kNet, static_cast<int>(net), of.local_gpu, 0, 0, kNoStep, Order::kFree);
        head_found = true;
      }
    }
    charge(-rate);
  }
}

void ChannelSearch::start() {
  if (between_nodes_) {
    start_at_net();
    return;
  }
  const int to_first = now_.pattern == Pattern::kRing ? gpus_ - 1 : kNoStep;
  const auto try_first = [&](int gpu, Order order) {
    try_gpu(NodeKind::kGpu, -1, gpu, 0, kNoStep, to_first, order);
  };
  if (now_.pattern == Pattern::kNvls) {
    try_first(now_.channels, Order::kFree);
    return;
  }
  if (now_.channels == 0) {
    try_first(0, Order::kPci);
  } else {
    try_first(first_of_last(), Order::kLikeLast);
  }
  if (!now_.same_channels || now_.channels == 0) {
    for (int g = 0; g < gpus_; ++g) {
      try_first(g, Order::kFree);
    }
  }
}

}  // namespace tapas::solver
