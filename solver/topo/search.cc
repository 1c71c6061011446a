#include "solver/topo/search.h"

#include "solver/topo/channel_search.h"
#include "solver/topo/link_rates.h"

#include <utility>

namespace tapas::solver {
namespace {

constexpr float kNoPathGbs = 0.1F;

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
  ChannelSet set;
  set.channels = static_cast<std::uint32_t>(from.channels.size());
  set.intra_bytes_per_s = bytes_per_s(from.intra_gbs);
  set.inter_bytes_per_s = bytes_per_s(from.inter_gbs);
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
  ChannelSearch search(system, between_nodes, effort);
  plan.ring =
      channels_of(search.best(Pattern::kRing, 1, kMaxTopoChannels / 2), count, between_nodes);
  if (!plan.ring.found) {
    plan.ring = stand_in(Pattern::kRing, gpus);
  }
  const int same = static_cast<int>(plan.ring.channels.size());
  plan.tree = channels_of(search.best(Pattern::kBalancedTree, same, same), count, between_nodes);
  if (!plan.tree.found) {
    plan.tree = stand_in(plan.tree.pattern, gpus);
  }
  plan.nvls = channels_of(search.best(Pattern::kNvls, 1, kMaxTopoChannels), count, between_nodes);
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
