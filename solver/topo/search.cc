#include "solver/topo/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string_view>

namespace tapas::solver {
namespace {

/// NCCL's limits on the steps of one attempt, and on all attempts of one pattern.
constexpr int kStepsSameChannels = 1 << 8;
constexpr int kSteps = 1 << 14;
constexpr int kStepsPciOrder = 1 << 10;
constexpr std::int64_t kStepsInAll = 1 << 19;
/// Ours, on everything, times the GPUs and interfaces that a step looks at: no server of the
/// reference answers needs half of it, even without pruning.
constexpr std::uint64_t kWorkLimit = 1ULL << 26U;
constexpr int kMaxChannels = 64;
constexpr int kMaxSwitchHeads = 32;
constexpr int kAlwaysPerfect = -1;
constexpr float kNoPathGbs = 0.1F;

constexpr float kIntra[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr float kInter[] = {48, 30, 28, 24, 20, 18,   15,   12,    10,   9,
                            7,  6,  5,  4,  3,  2.4F, 1.2F, 0.24F, 0.12F};
constexpr float kIntraHopper[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr float kInterHopper[] = {48, 45, 42, 40, 30,   24,   22,    20,   17.5F,
                                  15, 12, 6,  3,  2.4F, 1.2F, 0.24F, 0.12F};
constexpr float kIntraBlackwell[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr float kInterBlackwell[] = {96,    48, 45.1F, 42, 40, 30,   24,   22,    20,
                                     17.5F, 15, 12,    6,  3,  2.4F, 1.2F, 0.24F, 0.12F};

/// Rates per channel that are tried, fastest first.
std::span<const float> speeds(int sm, bool between_nodes) {
  if (sm >= 100) {
    return between_nodes ? std::span<const float>(kInterBlackwell) : kIntraBlackwell;
  }
  if (sm >= 90) {
    return between_nodes ? std::span<const float>(kInterHopper) : kIntraHopper;
  }
  return between_nodes ? std::span<const float>(kInter) : kIntra;
}

PathType next(PathType type) { return static_cast<PathType>(static_cast<std::uint8_t>(type) + 1); }

/// How the next GPU is chosen.
enum class Order : std::uint8_t { kFree, kPci, kLikeLast };
/// Which neighbours of a GPU come first.
enum class Toward : std::uint8_t { kNothing, kNet, kAwayFromNet };

struct Attempt {
  Pattern pattern = Pattern::kRing;
  int cross_nic = 0;
  int channels = 0;
  int min_channels = 1;
  int max_channels = 1;
  float intra = 0;
  float inter = 0;
  PathType type_intra = PathType::kLoc;
  PathType type_inter = PathType::kPix;
  float latency_us = 0;
  bool same_channels = true;
  float hops = 0;
  std::vector<std::uint32_t> order;                ///< GPUs of all channels, one after the other
  std::vector<std::array<std::uint32_t, 2>> nets;  ///< of each channel, in and out
};

class Search {
 public:
  Search(const TopoSystem& system, bool between_nodes, SearchEffort effort)
      : system_(system),
        between_nodes_(between_nodes),
        effort_(effort),
        gpus_(static_cast<int>(system.gpus().size())),
        used_(system.gpus().size(), 0) {
    for (const TopoSystem::Link& link : system.links()) {
      left_.push_back(link.gbs);
    }
    for (const TopoSystem::Net& net : system.nets()) {
      net_left_.push_back(net.gbs);
    }
    for (std::size_t g = 0; g < used_.size(); ++g) {
      pci_link_.push_back(pci_link_of(g));
    }
    measure();
    most_steps_ = kWorkLimit / (used_.size() + net_left_.size() + 1);
  }

  Attempt best(Pattern pattern, int min_channels, int max_channels);
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] bool cut_short() const { return steps_ >= most_steps_; }

 private:
  static constexpr int kNoStep = -1;
  /// How far one pattern may go.
  struct Bounds {
    PathType min_intra, max_intra, min_inter, max_inter;
    bool may_cross;
  };

  void measure();
  [[nodiscard]] int pci_link_of(std::size_t gpu) const;
  [[nodiscard]] PathType nearest(NodeKind to) const;
  [[nodiscard]] PathType farthest(NodeKind to) const;
  [[nodiscard]] bool split_nvlink() const;
  void run();
  [[nodiscard]] bool seen_before();
  [[nodiscard]] bool improvable() const;
  [[nodiscard]] int most_channels() const;
  [[nodiscard]] int most_channels_from_nets() const;
  [[nodiscard]] int fewest_hops() const;
  bool relax(const Bounds& bounds);
  bool raise();
  void split_channels();

  // Steps of one attempt. Each takes what it uses off `left_` and gives it back.
  void start();
  void start_at_net();
  void start_at_net_with(std::uint32_t net);
  bool try_gpu(NodeKind from, int index, int gpu, int step, int to_net, int to_first, Order order);
  void go_on(int gpu, int step, int to_net, int to_first, Order order);
  void return_to_net(int gpu, int step, int to_first, Order order);
  void try_switch(int gpu);
  void channel_done();
  [[nodiscard]] bool better() const;
  [[nodiscard]] bool net_fits(std::uint32_t first, std::uint32_t net, int step) const;
  [[nodiscard]] bool is_free(int gpu) const;
  void neighbours(int gpu, std::vector<int>& out) const;
  void next_gpus(int gpu, Toward toward, std::vector<int>& out) const;
  const std::vector<std::uint32_t>& nets_for(int gpu);
  bool follow(NodeKind from, int i, NodeKind to, int j, float times);
  int take(const TopoSystem::Path& path, bool from_gpu, int links, float gbs);
  [[nodiscard]] int first_of_last() const {
    return static_cast<int>(now_.order[static_cast<std::size_t>((now_.channels - 1) * gpus_)]);
  }
  std::uint32_t& place(int channel, int step) {
    return now_.order[static_cast<std::size_t>(channel * gpus_ + step)];
  }
  std::array<std::uint32_t, 2>& nets(int channel) {
    return now_.nets[static_cast<std::size_t>(channel)];
  }
  [[nodiscard]] const std::array<std::uint32_t, 2>& nets(int channel) const {
    return now_.nets[static_cast<std::size_t>(channel)];
  }

  const TopoSystem& system_;
  bool between_nodes_;
  SearchEffort effort_;
  int gpus_;
  float max_gbs_ = 0;
  float total_gbs_ = 0;
  std::vector<float> left_;          ///< of each link
  std::vector<float> net_left_;      ///< of each interface
  std::vector<std::uint64_t> used_;  ///< per GPU one bit for each channel
  std::vector<int> pci_link_;
  Attempt now_;
  Attempt best_;
  std::span<const float> speeds_;
  std::size_t speed_ = 0;
  int budget_ = 0;         ///< steps of this attempt
  bool settled_ = false;   ///< this attempt cannot improve any more
  float hops_before_ = 0;  ///< at its start
  bool pass_one_ = true;
  /// Attempts of pass one that were made, and the budget that they left.
  std::map<std::array<float, 7>, int> made_;
  int* last_made_ = nullptr;
  std::int64_t steps_left_ = 0;  ///< of all attempts of this pattern
  std::uint64_t steps_ = 0;
  std::uint64_t most_steps_ = 0;
  /// nets_for() by GPU, the last for any; valid for one type.
  std::vector<std::vector<std::uint32_t>> nets_for_;
  PathType nets_for_type_ = PathType::kDis;
};

/// The most that one channel can get, and that a GPU has.
void Search::measure() {
  if (!between_nodes_ && gpus_ == 1) {
    max_gbs_ = total_gbs_ = std::numeric_limits<float>::max();
    return;
  }
  const NodeKind far = between_nodes_ ? NodeKind::kNet : NodeKind::kGpu;
  for (std::size_t g = 0; g < used_.size(); ++g) {
    for (std::size_t i = 0; i < system_.count(far); ++i) {
      const TopoSystem::Path& path = system_.path(NodeKind::kGpu, g, far, i);
      if (path.hops() > 0) {
        max_gbs_ = std::max(max_gbs_, path.gbs);
      }
    }
  }
  for (const TopoSystem::Node& node : system_.nodes()) {
    if (node.kind != NodeKind::kGpu) {
      continue;
    }
    float nvlink = 0;
    float pci = 0;
    for (const std::uint32_t l : node.links) {
      const TopoSystem::Link& link = system_.links()[l];
      if (link.type == PathType::kNvl) {
        nvlink += link.gbs;
      } else if (link.type == PathType::kPix) {
        pci = link.gbs;
      }
    }
    total_gbs_ = std::max({total_gbs_, nvlink, pci});
  }
}

int Search::pci_link_of(std::size_t gpu) const {
  for (const TopoSystem::Node& node : system_.nodes()) {
    if (node.kind == NodeKind::kGpu && node.index == gpu) {
      for (const std::uint32_t l : node.links) {
        if (system_.links()[l].type == PathType::kPix) {
          return static_cast<int>(l);
        }
      }
    }
  }
  return -1;
}

PathType Search::nearest(NodeKind to) const {
  PathType type = PathType::kSys;
  for (std::size_t g = 0; g < used_.size(); ++g) {
    for (std::size_t i = 0; i < system_.count(to); ++i) {
      if (to != NodeKind::kGpu || i != g) {
        type = std::min(type, system_.path(NodeKind::kGpu, g, to, i).type);
      }
    }
  }
  return type;
}

PathType Search::farthest(NodeKind to) const {
  PathType type = PathType::kLoc;
  for (std::size_t g = 0; g < used_.size(); ++g) {
    for (std::size_t i = 0; i < system_.count(to); ++i) {
      if (to != NodeKind::kGpu || i != g) {
        type = std::max(type, system_.path(NodeKind::kGpu, g, to, i).type);
      }
    }
  }
  return type;
}

/// Two groups of NVLink-connected GPUs with a slower link between them.
bool Search::split_nvlink() const {
  std::vector<std::size_t> group(used_.size());
  for (std::size_t g = 0; g < group.size(); ++g) {
    group[g] = g;
  }
  for (std::size_t g = 0; g < group.size(); ++g) {
    for (std::size_t p = g + 1; p < group.size(); ++p) {
      if (system_.path(NodeKind::kGpu, g, NodeKind::kGpu, p).type == PathType::kNvl) {
        group[p] = group[g];
      }
    }
  }
  int groups = 0;
  for (std::size_t g = 0; g < group.size(); ++g) {
    groups += std::count(group.begin(), group.end(), g) > 1 ? 1 : 0;
  }
  return groups == 2;
}

/// Takes `gbs` off the path's first links, negative to give back. Returns how many links had it.
int Search::take(const TopoSystem::Path& path, bool from_gpu, int links, float gbs) {
  float pci_gbs = gbs;
  if (path.type == PathType::kPhb && from_gpu) {
    for (const std::uint32_t l : path.links) {
      const TopoSystem::Node& to = system_.nodes()[system_.links()[l].to];
      if (to.kind == NodeKind::kCpu && system_.host_of(to.index) == TopoSystem::Host::kIntel) {
        // Small packets through the root complex: six parts for five.
        pci_gbs = gbs * 6 / 5;
      }
    }
  }
  const auto subtract = [](float& from, float what) {
    from = std::round((from - what) * 1000) / 1000;
  };
  for (int i = 0; i < links; ++i) {
    const std::uint32_t l = path.links[static_cast<std::size_t>(i)];
    const TopoSystem::Link& link = system_.links()[l];
    const TopoSystem::Node& to = system_.nodes()[link.to];
    const float forward = link.type == PathType::kPix ? pci_gbs : gbs;
    float backward = 0;
    if (to.kind == NodeKind::kGpu && !from_gpu && system_.gpus()[to.index].sm < 80) {
      backward += forward / 8;  // acknowledgements of older GPUs
    }
    if (to.kind == NodeKind::kCpu && link.type == PathType::kNvl &&
        system_.host_of(to.index) == TopoSystem::Host::kPower) {
      backward += forward;
    }
    float& back = left_[backward != 0 ? system_.reverse(l) : l];
    if (left_[l] < forward || (backward != 0 && back < backward)) {
      return i;
    }
    subtract(left_[l], forward);
    if (backward != 0) {
      subtract(back, backward);
    }
  }
  return links;
}

/// Uses a path `times` the channel's rate; -times gives it back. False: too far or too narrow.
bool Search::follow(NodeKind from, int i, NodeKind to, int j, float times) {
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
const std::vector<std::uint32_t>& Search::nets_for(int gpu) {
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
    for (std::uint32_t c = 1; c < kMaxChannels; ++c) {
      const std::uint32_t net = system_.net_of_gpu(g, c);
      if (net == own) {
        break;
      }
      add(net);
    }
  }
  for (PathType type = PathType::kLoc; type <= now_.type_inter; type = next(type)) {
    for (std::size_t g = first; g < end; ++g) {
      const std::size_t count = std::min<std::size_t>(system_.nets().size(), kMaxChannels);
      for (std::uint32_t n = 0; n < count; ++n) {
        if (system_.path(NodeKind::kGpu, g, NodeKind::kNet, n).type == type) {
          add(n);
        }
      }
    }
  }
  return found;
}

bool Search::net_fits(std::uint32_t first, std::uint32_t net, int step) const {
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

bool Search::is_free(int gpu) const {
  return (used_[static_cast<std::size_t>(gpu)] >> static_cast<unsigned>(now_.channels) & 1U) == 0;
}

/// A switch serves few peers best: neighbours only.
void Search::neighbours(int gpu, std::vector<int>& out) const {
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
      out.push_back(wanted[i]);
    }
  }
}

/// GPUs to try after this one, best first.
void Search::next_gpus(int gpu, Toward toward, std::vector<int>& out) const {
  if (system_.has_switch()) {
    neighbours(gpu, out);
    return;
  }
  struct Score {
    int gpu, start, hops, gbs, net_hops, pci_gbs, net_gbs;
    [[nodiscard]] auto key() const {
      return std::array{-net_gbs, -pci_gbs, net_hops, -gbs, hops, start};
    }
  };
  std::vector<Score> scores;
  scores.reserve(used_.size());
  const auto own = static_cast<std::size_t>(gpu);
  for (int i = 1; i < gpus_; ++i) {
    const int g = (gpu + i) % gpus_;
    const auto other = static_cast<std::size_t>(g);
    const TopoSystem::Path& path = system_.path(NodeKind::kGpu, own, NodeKind::kGpu, other);
    if (path.hops() == 0 || !is_free(g)) {
      continue;
    }
    Score score{g, i, path.hops(), static_cast<int>(path.gbs), 0, 0, 0};
    if (toward != Toward::kNothing) {
      const TopoSystem::Path& net =
          system_.path(NodeKind::kNet, nets(now_.channels)[0], NodeKind::kGpu, other);
      score.net_hops = net.hops();
      score.net_gbs = static_cast<int>(net.gbs);
      score.pci_gbs = -1;
      if (const int l = pci_link_[other]; l >= 0) {
        const auto up = static_cast<std::uint32_t>(l);
        score.pci_gbs = static_cast<int>(std::min(left_[up], left_[system_.reverse(up)]));
      }
    }
    scores.push_back(score);
  }
  std::sort(scores.begin(), scores.end(),
            [](const Score& a, const Score& b) { return a.key() < b.key(); });
  const bool alike = std::all_of(scores.begin(), scores.end(), [&](const Score& one) {
    return one.gbs == scores.front().gbs && one.hops == scores.front().hops;
  });
  if (toward == Toward::kAwayFromNet && alike) {
    std::reverse(scores.begin(), scores.end());
  }
  for (const Score& score : scores) {
    out.push_back(score.gpu);
  }
}

bool Search::better() const {
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

void Search::channel_done() {
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

bool Search::try_gpu(NodeKind from, int index, int gpu, int step, int to_net, int to_first,
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

void Search::return_to_net(int gpu, int step, int to_first, Order order) {
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
void Search::try_switch(int gpu) {
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

void Search::go_on(int gpu, int step, int to_net, int to_first, Order order) {
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
    std::vector<int> following;
    if (order == Order::kPci) {
      following.assign(1, step + 1);
    } else if (order == Order::kLikeLast) {
      following.assign(1, static_cast<int>(place(now_.channels - 1, step + 1)));
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

void Search::start_at_net_with(std::uint32_t net) {
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

void Search::start_at_net() {
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

void Search::start() {
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

/// Upper bound on the channels that can enter by the interfaces at this rate.
int Search::most_channels_from_nets() const {
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
int Search::most_channels() const {
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
int Search::fewest_hops() const {
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
bool Search::improvable() const {
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
bool Search::seen_before() {
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

void Search::run() {
  budget_ = now_.same_channels ? kStepsSameChannels : kSteps;
  steps_left_ -= budget_;
  now_.channels = 0;
  hops_before_ = now_.hops;
  settled_ = false;
  const bool prune = effort_ == SearchEffort::kPruned;
  const bool remember = prune && pass_one_ && now_.pattern != Pattern::kNvls;
  if (remember && seen_before()) {
    return;
  }
  if (!prune || improvable()) {
    start();
  }
  if (remember) {
    *last_made_ = budget_;
  }
}

/// Pass one found nothing better with this shape: the next one to try, from near and simple to far,
/// then slower. False when a solution is as good as it gets, or all was tried.
bool Search::relax(const Bounds& bounds) {
  const bool through_amd =
      system_.host() == TopoSystem::Host::kAmd && now_.type_intra == PathType::kSys;
  if (now_.same_channels && !through_amd) {
    now_.same_channels = false;
    return true;
  }
  now_.same_channels = now_.pattern != Pattern::kNvls;
  steps_left_ += budget_;
  if (steps_left_ < 0 && best_.channels > 0) {
    return false;
  }
  if (system_.min_sm() >= 90 && now_.pattern == Pattern::kBalancedTree) {
    now_.pattern = Pattern::kTree;
    return true;
  }
  now_.pattern = best_.pattern;
  const bool none = best_.channels == 0;
  const PathType farthest_intra = between_nodes_ ? now_.type_inter : bounds.max_intra;
  if (now_.type_intra < farthest_intra && (none || now_.type_intra < best_.type_intra)) {
    now_.type_intra = next(now_.type_intra);
    if (now_.type_intra < PathType::kDis) {
      return true;
    }
  }
  now_.type_intra = bounds.min_intra;
  if (between_nodes_ && now_.type_inter < bounds.max_inter &&
      (none || now_.type_inter < best_.type_inter || now_.type_inter < PathType::kPxn)) {
    now_.type_inter = next(now_.type_inter);
    if (now_.type_inter < PathType::kDis) {
      return true;
    }
  }
  now_.type_inter = bounds.min_inter;
  if (bounds.may_cross && now_.cross_nic == 0 &&
      (best_.pattern == Pattern::kRing || best_.pattern == Pattern::kBalancedTree)) {
    now_.cross_nic = 2;
    return true;
  }
  now_.cross_nic = 0;
  if (speed_ + 1 < speeds_.size() && (none || speeds_[speed_ + 1] / best_.inter > .49F)) {
    now_.inter = now_.intra = speeds_[++speed_];
    return true;
  }
  return false;
}

/// Pass two keeps the channels and raises their rate. False when nothing is left to raise.
bool Search::raise() {
  if (budget_ == 0 || speed_ == 0) {
    return false;
  }
  if (best_.pattern == Pattern::kRing) {
    now_.intra = now_.inter = speeds_[--speed_];
  } else if (best_.pattern == Pattern::kNvls && now_.inter == best_.inter &&
             now_.inter < now_.intra * 2) {
    now_.min_channels = now_.max_channels = best_.channels;
    now_.inter = speeds_[--speed_];
  } else if (now_.intra == best_.intra && now_.intra < now_.inter * 2) {
    now_.intra = speeds_[--speed_];
  } else {
    return false;
  }
  return true;
}

/// Fast channels are split in two, which keeps more of a GPU busy.
void Search::split_channels() {
  const int sm = system_.min_sm();
  if (best_.channels == 0 || best_.pattern == Pattern::kNvls || best_.intra < 25 ||
      (sm > 80 && best_.intra < 50 && best_.channels > 4)) {
    return;
  }
  const int twice = std::min(best_.channels * 2, best_.max_channels);
  const int added = twice - best_.channels;
  std::copy_n(best_.order.begin(), added * gpus_, best_.order.begin() + best_.channels * gpus_);
  std::copy_n(best_.nets.begin(), added, best_.nets.begin() + best_.channels);
  const auto parts = static_cast<float>((twice + best_.channels - 1) / best_.channels);
  best_.intra /= parts;
  best_.inter /= parts;
  best_.channels = twice;
}

Attempt Search::best(Pattern pattern, int min_channels, int max_channels) {
  best_ = Attempt();
  best_.pattern = pattern;
  best_.min_channels = min_channels;
  best_.max_channels = max_channels;
  best_.order.resize(static_cast<std::size_t>(kMaxChannels * gpus_));
  best_.nets.resize(kMaxChannels);
  best_.same_channels = pattern != Pattern::kNvls;
  Bounds bounds{PathType::kLoc, PathType::kSys, PathType::kPix, PathType::kSys, false};
  bounds.may_cross =
      system_.nets().size() > 1 && (pattern == Pattern::kRing || pattern == Pattern::kBalancedTree);
  if (gpus_ > 1) {
    bounds.min_intra = nearest(NodeKind::kGpu);
    bounds.max_intra = farthest(NodeKind::kGpu);
  }
  if (between_nodes_) {
    bounds.min_inter = nearest(NodeKind::kNet);
    bounds.max_intra = bounds.max_inter = farthest(NodeKind::kNet);
  }
  best_.type_intra = bounds.min_intra;
  best_.type_inter = bounds.min_inter;
  const int sm = system_.min_sm();
  if (pattern == Pattern::kNvls) {
    if (!system_.has_switch() || sm < 90 || gpus_ < 2) {
      return best_;
    }
    best_.max_channels = std::min(kMaxSwitchHeads, gpus_);
    if (!between_nodes_) {
      best_.min_channels = best_.max_channels;  // an equal pull from all GPUs
    }
  }
  if (gpus_ == 1 && pattern != Pattern::kRing) {
    best_.pattern = Pattern::kTree;
  }
  if (pattern == Pattern::kRing && best_.max_channels >= 2 && best_.min_channels == 1 &&
      split_nvlink()) {
    best_.min_channels = 2;  // a tree between the halves needs two, and as many as rings
  }

  now_ = best_;
  speeds_ = speeds(sm, between_nodes_);
  speed_ = 0;
  float total = total_gbs_;
  if (gpus_ > 1 && best_.pattern != Pattern::kRing) {
    total *= static_cast<float>(gpus_) / static_cast<float>(gpus_ - 1);
  }
  while (speed_ + 1 < speeds_.size() &&
         (speeds_[speed_] > max_gbs_ ||
          speeds_[speed_] * static_cast<float>(best_.min_channels) > total)) {
    ++speed_;
  }
  now_.intra = now_.inter = speeds_[speed_];
  steps_left_ = kStepsInAll;
  made_.clear();
  pass_one_ = true;
  do {
    run();
  } while (budget_ != kAlwaysPerfect &&
           static_cast<float>(best_.channels) * best_.inter < total_gbs_ && relax(bounds));

  pass_one_ = false;
  budget_ = kAlwaysPerfect;
  split_channels();
  now_ = best_;
  speed_ = 0;
  while (speed_ + 1 < speeds_.size() && speeds_[speed_] > best_.inter) {
    ++speed_;
  }
  now_.intra = now_.inter = speeds_[speed_];
  now_.min_channels = best_.channels;
  while (raise()) {
    run();
  }
  return best_;
}

TopoChannels channels_of(const Attempt& from, int gpus, bool between_nodes) {
  TopoChannels out;
  out.pattern = from.pattern;
  out.found = from.channels > 0;
  if (!out.found) {
    return out;
  }
  out.intra_gbs = from.intra;
  out.inter_gbs = from.inter;
  out.intra = from.type_intra;
  out.inter = from.type_inter;
  out.latency_us = from.latency_us;
  const int used = from.pattern == Pattern::kNvls ? 1 : gpus;
  for (int c = 0; c < from.channels; ++c) {
    TopoChannel channel;
    const auto first = from.order.begin() + c * gpus;
    channel.gpus.assign(first, first + used);
    if (between_nodes) {
      channel.net_in = from.nets[static_cast<std::size_t>(c)][0];
      channel.net_out = from.nets[static_cast<std::size_t>(c)][1];
    }
    out.channels.push_back(std::move(channel));
  }
  return out;
}

/// What NCCL runs when it finds no path at all: the sign of a broken topology.
TopoChannels stand_in(Pattern pattern, std::size_t gpus) {
  TopoChannels out;
  out.pattern = pattern;
  out.intra_gbs = out.inter_gbs = kNoPathGbs;
  out.intra = out.inter = PathType::kSys;
  TopoChannel channel;
  for (std::uint32_t g = 0; g < gpus; ++g) {
    channel.gpus.push_back(g);
  }
  out.channels.push_back(std::move(channel));
  return out;
}

ChannelSet channel_set(const TopoChannels& from) {
  constexpr double kGiga = 1e9;
  ChannelSet set;
  set.channels = static_cast<std::uint32_t>(from.channels.size());
  set.intra_bytes_per_s = double{from.intra_gbs} * kGiga;
  set.inter_bytes_per_s = double{from.inter_gbs} * kGiga;
  set.intra = from.intra;
  set.inter = from.inter;
  set.nic_latency_s = double{from.latency_us} * 1e-6;
  return set;
}

}  // namespace

TopoPlan search_channels(const TopoSystem& system, bool between_nodes, SearchEffort effort) {
  const std::size_t gpus = system.gpus().size();
  TopoPlan plan;
  if (between_nodes ? system.nets().empty() : gpus == 1) {
    return plan;
  }
  const int count = static_cast<int>(gpus);
  Search search(system, between_nodes, effort);
  plan.ring = channels_of(search.best(Pattern::kRing, 1, kMaxChannels / 2), count, between_nodes);
  if (!plan.ring.found) {
    plan.ring = stand_in(Pattern::kRing, gpus);
  }
  const int same = static_cast<int>(plan.ring.channels.size());
  plan.tree = channels_of(search.best(Pattern::kBalancedTree, same, same), count, between_nodes);
  if (!plan.tree.found) {
    plan.tree = stand_in(plan.tree.pattern, gpus);
  }
  plan.nvls = channels_of(search.best(Pattern::kNvls, 1, kMaxChannels), count, between_nodes);
  plan.steps = search.steps();
  plan.cut_short = search.cut_short();
  return plan;
}

CommGraph comm_graph(const TopoSystem& system, const TopoPlan& plan) {
  CommGraph graph;
  graph.ring = channel_set(plan.ring);
  graph.tree = channel_set(plan.tree);
  graph.nvls = channel_set(plan.nvls);
  graph.plain_tree = plan.tree.pattern == Pattern::kTree;
  const int sm = system.min_sm();
  graph.generation = sm >= 100  ? Generation::kBlackwell
                     : sm >= 90 ? Generation::kHopper
                     : sm >= 80 ? Generation::kAmpere
                                : Generation::kVolta;
  graph.same_devices = system.same_sm();
  graph.amd_host = system.host() == TopoSystem::Host::kAmd;
  return graph;
}

}  // namespace tapas::solver
