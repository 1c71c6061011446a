#include "solver/topo/channel_search.h"

#include "base/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapas::solver {
namespace {

/// NCCL's limits on the steps of one attempt, and on all attempts of one pattern.
constexpr int kStepsSameChannels = 1 << 8;
constexpr int kSteps = 1 << 14;
constexpr std::int64_t kStepsInAll = 1 << 19;
/// Ours, on everything, in GPUs and interfaces that steps look at: no server of the reference
/// answers needs half of it, or of the second without pruning. About 0.15 s of a core.
constexpr std::uint64_t kWorkLimit = 1ULL << 25U;
constexpr std::uint64_t kWorkLimitUnpruned = 1ULL << 27U;
constexpr int kMaxSwitchHeads = 32;

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

}  // namespace

ChannelSearch::ChannelSearch(const TopoSystem& system, bool between_nodes, SearchEffort effort)
    : system_(system),
      between_nodes_(between_nodes),
      effort_(effort),
      gpus_(static_cast<int>(system.gpus().size())),
      used_(system.gpus().size(), 0) {
  for (const TopoSystem::Link& link : system.links()) {
    left_.push_back(link.gbs);
    traits_.push_back(traits_of(link));
  }
  for (const TopoSystem::Net& net : system.nets()) {
    net_left_.push_back(net.gbs);
  }
  for (std::size_t g = 0; g < used_.size(); ++g) {
    pci_link_.push_back(pci_link_of(g));
  }
  TAPAS_CHECK(used_.size() <= kMaxTopoGpus, "{} GPUs to search", used_.size());
  rank_peers();
  measure();
  most_steps_ = (effort == SearchEffort::kPruned ? kWorkLimit : kWorkLimitUnpruned) /
                (used_.size() + net_left_.size() + 1);
}

/// The most that one channel can get, and that a GPU has.
void ChannelSearch::measure() {
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

std::uint8_t ChannelSearch::traits_of(const TopoSystem::Link& link) const {
  const TopoSystem::Node& to = system_.nodes()[link.to];
  unsigned traits = 0;
  if (link.type == PathType::kPix) {
    traits |= kPci;
  }
  if (to.kind == NodeKind::kGpu && system_.gpus()[to.index].sm < 80) {
    traits |= kToOldGpu;
  }
  if (to.kind == NodeKind::kCpu && system_.host_of(to.index) == TopoSystem::Host::kIntel) {
    traits |= kToIntel;
  }
  if (to.kind == NodeKind::kCpu && system_.host_of(to.index) == TopoSystem::Host::kPower &&
      link.type == PathType::kNvl) {
    traits |= kToPower;
  }
  return static_cast<std::uint8_t>(traits);
}

int ChannelSearch::pci_link_of(std::size_t gpu) const {
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

PathType ChannelSearch::nearest(NodeKind to) const {
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

PathType ChannelSearch::farthest(NodeKind to) const {
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
bool ChannelSearch::split_nvlink() const {
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

void ChannelSearch::run() {
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
bool ChannelSearch::relax(const Bounds& bounds) {
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
    now_.type_intra = next_type(now_.type_intra);
    if (now_.type_intra < PathType::kDis) {
      return true;
    }
  }
  now_.type_intra = bounds.min_intra;
  if (between_nodes_ && now_.type_inter < bounds.max_inter &&
      (none || now_.type_inter < best_.type_inter || now_.type_inter < PathType::kPxn)) {
    now_.type_inter = next_type(now_.type_inter);
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
bool ChannelSearch::raise() {
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
void ChannelSearch::split_channels() {
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

Attempt ChannelSearch::best(Pattern pattern, int min_channels, int max_channels) {
  best_ = Attempt();
  best_.pattern = pattern;
  best_.min_channels = min_channels;
  best_.max_channels = max_channels;
  best_.order.resize(static_cast<std::size_t>(kMaxTopoChannels * gpus_));
  best_.nets.resize(kMaxTopoChannels);
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

}  // namespace tapas::solver
