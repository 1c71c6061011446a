#include "solver/cost/collectives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>

namespace tapas::solver {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNone = 1e30;  ///< GB/s: no limit

/// Everything below in NCCL's units, microseconds and GB/s: NCCL 2.28.9 src/graph/tuning.cc.
using PerProtocol = std::array<double, 3>;  ///< LL, LL128, Simple
constexpr std::size_t kAlgorithms = 5;      ///< Ring, Tree, NVLS, NVLSTree, PAT

constexpr std::array<PerProtocol, kAlgorithms> kBaseUs = {
    {{6.6, 14.0, 8.4}, {6.8, 14.0, 8.4}, {0, 0, 0}, {0, 0, 0}, {8.0, 8.0, 8.0}}};
constexpr std::array<PerProtocol, kAlgorithms> kNvlinkUs = {
    {{.6, 1.9, 3.4}, {.6, 1.25, 4.0}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4.0}}};
constexpr std::array<PerProtocol, kAlgorithms> kPciUs = {
    {{1.0, 2.5, 5.7}, {1.0, 1.9, 4.0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4.0}}};
constexpr std::array<PerProtocol, kAlgorithms> kNetUs = {
    {{2.7, 4.0, 14.0}, {5.0, 8.5, 14.0}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};

/// Limits of a generation for one node, two nodes, more.
using PerSpan = std::array<double, 3>;
struct Limits {
  PerSpan ll;
  PerSpan ring_ll128;  ///< per channel, as all below
  PerSpan tree_ll128;
  PerSpan tree;
  PerSpan nvls_tree;
  double nvls_efficiency;
};
constexpr PerSpan kUnlimited = {kNone, kNone, kNone};
constexpr std::array<Limits, 5> kLimits = {{
    // Unknown: LL limits of Ampere, the others unlimited.
    {{87.7, 22.5, 19.0}, kUnlimited, kUnlimited, kUnlimited, kUnlimited, 0},
    {{39.0, 39.0, 20.4}, {20, 20, 20}, {20, 20, 20}, {26.5, 18.5, 10}, {26.5, 18.5, 10}, 0},
    {{87.7, 22.5, 19.0}, {20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {24, 23.6, 17.8}, 0},
    {{141, 45, 35}, {36.7, 36.7, 36.7}, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}, .85},
    {{282, 90, 70}, {73.4, 34.6, 73.4}, {55.6, 31.67, 20}, {70, 42.8, 24}, {0, 96, 43.8}, .74},
}};

/// What a tree reaches of its bandwidth, by the power of two above 64 bytes.
constexpr std::array<std::array<double, 23>, 3> kTreeCorrection = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

template <typename E>
constexpr std::size_t at(E value) {
  return static_cast<std::size_t>(value);
}

double floor_log2(double value) { return std::floor(std::log2(value)); }

struct Shape {
  double nodes, per_node, ranks;
  std::size_t span;  ///< 0, 1, 2: one node, two, more
};
Shape shape_of(GroupShape group) {
  return {static_cast<double>(group.nodes), static_cast<double>(group.per_node),
          static_cast<double>(group.nodes) * group.per_node,
          static_cast<std::size_t>(std::clamp<std::uint32_t>(group.nodes, 1, 3) - 1)};
}

const ChannelSet& channels_of(const CommGraph& graph, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return graph.ring;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree:
      return graph.nvls;
    case Algorithm::kTree:
    case Algorithm::kPat:
      break;
  }
  return graph.tree;
}

/// Rings and trees take turns on the same channels, so both have the smaller number.
double channel_count(const CommGraph& graph, Algorithm algorithm) {
  const bool switched = algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree;
  return switched ? graph.nvls.channels : std::min(graph.ring.channels, graph.tree.channels);
}

bool considered(const CommGraph& graph, Collective op, Algorithm algorithm, Protocol protocol,
                GroupShape group) {
  const bool reduces_all = op == Collective::kAllReduce;
  switch (algorithm) {
    case Algorithm::kRing:
      break;
    case Algorithm::kTree:
      if (!reduces_all) {
        return false;
      }
      break;
    case Algorithm::kNvls:
      if (group.nodes > 1) {
        return false;
      }
      break;
    case Algorithm::kNvlsTree:
      if (group.nodes == 1 || !reduces_all) {
        return false;
      }
      break;
    case Algorithm::kPat:
      if (group.per_node > 1 || reduces_all) {
        return false;
      }
      break;
  }
  if (algorithm == Algorithm::kRing || algorithm == Algorithm::kTree) {
    if (protocol == Protocol::kLl128) {
      const ChannelSet& set = channels_of(graph, algorithm);
      const PathType farthest =
          graph.generation >= Generation::kHopper ? PathType::kPxn : PathType::kPxb;
      return graph.same_devices && graph.generation != Generation::kUnknown &&
             set.intra <= PathType::kNvb && set.inter <= farthest;
    }
    return true;
  }
  return protocol == Protocol::kSimple;
}

/// GB/s of the algorithm, message bytes over time.
double algorithm_rate(const CommGraph& graph, Collective op, Algorithm algorithm, Protocol protocol,
                      const Shape& shape) {
  const ChannelSet& set = channels_of(graph, algorithm);
  const Limits& limits = kLimits[at(graph.generation)];
  const bool reduces_all = op == Collective::kAllReduce;
  const double count = channel_count(graph, algorithm);
  const double intra = set.intra_bytes_per_s / kGiga;
  const double inter = set.inter_bytes_per_s / kGiga;
  const double channel = shape.span == 2 ? inter : intra;
  // Inside a node the device limits LL, between nodes the host: AMD's or Intel's.
  const Generation ll_row = shape.span == 0  ? graph.generation
                            : graph.amd_host ? Generation::kAmpere
                                             : Generation::kVolta;
  const double ll = kLimits[at(ll_row)].ll[shape.span];
  const double steps = (reduces_all ? 2 : 1) * (shape.ranks - 1);
  double bus = count * channel;
  switch (algorithm) {
    case Algorithm::kRing:
      if (protocol == Protocol::kLl) {
        bus = std::min(ll, bus / 2);
      } else if (protocol == Protocol::kLl128) {
        bus = std::min(bus * .92, count * limits.ring_ll128[shape.span]);
      }
      return bus * shape.ranks / steps;
    case Algorithm::kTree:
      bus = std::min(bus * .92, count * limits.tree[shape.span]);
      if (protocol == Protocol::kLl) {
        bus = std::min(bus / 3.8, ll);
      } else if (protocol == Protocol::kLl128) {
        bus = std::min(bus * (shape.span == 0 ? 7.0 / 9 : 120.0 / 128),
                       count * limits.tree_ll128[shape.span]);
      }
      return bus * (graph.plain_tree ? .85 : 1) / 2;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: {
      const double switched = intra * limits.nvls_efficiency * (count - 1) / count *
                              (reduces_all ? 2 : (shape.per_node - 1) / shape.per_node);
      if (algorithm == Algorithm::kNvls) {
        bus = count * std::min(switched, inter);
        return reduces_all ? bus * shape.ranks / steps : bus;
      }
      bus = count *
            std::min({switched, inter * (shape.span == 1 ? 2 : 1), limits.nvls_tree[shape.span]});
      return bus * shape.ranks / steps;
    }
    case Algorithm::kPat:
      break;
  }
  return bus * .75;
}

double latency_us(const CommGraph& graph, Collective op, Algorithm algorithm, Protocol protocol,
                  const Shape& shape) {
  const ChannelSet& set = channels_of(graph, algorithm);
  const std::size_t a = at(algorithm);
  const std::size_t p = at(protocol);
  const bool simple = protocol == Protocol::kSimple;
  const double base = kBaseUs[a][p];
  const double intra = (set.intra == PathType::kNvl ? kNvlinkUs : kPciUs)[a][p];
  // With one device per node nothing hides the network: the tree's value counts for all.
  const double inter = kNetUs[shape.per_node == 1 ? at(Algorithm::kTree) : a][p] +
                       set.nic_latency_s / kMicro * (simple ? 2 : 1);
  switch (algorithm) {
    case Algorithm::kRing: {
      const double turns = op == Collective::kAllReduce ? 2 : 1;
      const double between = turns * (shape.nodes - 1);
      const double posting = shape.span == 0 ? 0 : (graph.amd_host ? 2.0 : 1.0) * (simple ? 3 : 1);
      return base + (turns * (shape.ranks - 1) - between) * std::max(intra, posting) +
             between * inter;
    }
    case Algorithm::kTree:
      return base + 2 * ((shape.per_node - 1) * intra + floor_log2(shape.nodes) * inter);
    case Algorithm::kNvls:
      return intra;
    case Algorithm::kNvlsTree:
      return base + intra + 2 * floor_log2(shape.nodes) * inter;
    case Algorithm::kPat:
      break;
  }
  return base + floor_log2(shape.nodes) * inter / 3.5 + shape.ranks * 2.8;
}

std::optional<CollectiveEstimate> estimate(const CommGraph& graph, Collective op,
                                           Algorithm algorithm, Protocol protocol,
                                           GroupShape group) {
  const bool switched = algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree;
  if (channel_count(graph, algorithm) < (switched ? 2 : 1) ||
      !considered(graph, op, algorithm, protocol, group)) {
    return std::nullopt;
  }
  const Shape shape = shape_of(group);
  const double rate = algorithm_rate(graph, op, algorithm, protocol, shape);
  if (!(rate > 0)) {
    return std::nullopt;
  }
  return CollectiveEstimate{algorithm, protocol,
                            latency_us(graph, op, algorithm, protocol, shape) * kMicro,
                            rate * kGiga};
}

constexpr std::array<Algorithm, kAlgorithms> kAllAlgorithms = {
    Algorithm::kRing, Algorithm::kTree, Algorithm::kNvls, Algorithm::kNvlsTree, Algorithm::kPat};
constexpr std::array<Protocol, 3> kAllProtocols = {Protocol::kLl, Protocol::kLl128,
                                                   Protocol::kSimple};

/// On a log-log scale between the two measured sizes around `bytes`; beyond them the rate of the
/// largest and the time of the smallest go on.
std::optional<double> measured_time_s(const std::vector<MeasuredCollective>& measured,
                                      Collective op, double bytes, GroupShape group) {
  const MeasuredCollective* below = nullptr;
  const MeasuredCollective* above = nullptr;
  for (const MeasuredCollective& one : measured) {
    if (one.op != op || one.nodes != group.nodes || one.devices != group.nodes * group.per_node) {
      continue;
    }
    if (one.bytes <= bytes && (below == nullptr || one.bytes > below->bytes)) {
      below = &one;
    }
    if (one.bytes >= bytes && (above == nullptr || one.bytes < above->bytes)) {
      above = &one;
    }
  }
  if (below == nullptr) {
    return above == nullptr ? std::nullopt : std::optional(above->seconds);
  }
  if (above == nullptr) {
    return below->seconds * bytes / below->bytes;
  }
  if (above->bytes == below->bytes) {
    return below->seconds;
  }
  const double part = std::log(bytes / below->bytes) / std::log(above->bytes / below->bytes);
  return below->seconds * std::pow(above->seconds / below->seconds, part);
}

}  // namespace

std::string_view to_string(Collective op) {
  static constexpr std::array<std::string_view, 3> kNames = {"all-reduce", "all-gather",
                                                             "reduce-scatter"};
  return kNames[at(op)];
}

std::string_view to_string(Algorithm algorithm) {
  static constexpr std::array<std::string_view, kAlgorithms> kNames = {"Ring", "Tree", "NVLS",
                                                                       "NVLSTree", "PAT"};
  return kNames[at(algorithm)];
}

std::string_view to_string(Protocol protocol) {
  static constexpr std::array<std::string_view, 3> kNames = {"LL", "LL128", "Simple"};
  return kNames[at(protocol)];
}

std::vector<CollectiveEstimate> collective_estimates(const CommGraph& graph, Collective op,
                                                     GroupShape group) {
  std::vector<CollectiveEstimate> all;
  if (group.nodes * group.per_node > 1) {
    for (const Algorithm algorithm : kAllAlgorithms) {
      for (const Protocol protocol : kAllProtocols) {
        if (const auto one = estimate(graph, op, algorithm, protocol, group)) {
          all.push_back(*one);
        }
      }
    }
  }
  return all;
}

double seconds_of(const CollectiveEstimate& estimate, const CommGraph& graph, Collective op,
                  double bytes, GroupShape group) {
  double rate = estimate.bytes_per_s;
  double latency = estimate.latency_s;
  if (op == Collective::kAllReduce && estimate.algorithm == Algorithm::kTree && bytes >= 64) {
    const auto size = static_cast<std::size_t>(floor_log2(bytes / 64));
    const auto& correction = kTreeCorrection[at(estimate.protocol)];
    rate *= size < correction.size() ? correction[size] : 1;
  }
  if (op == Collective::kAllReduce && estimate.algorithm == Algorithm::kRing &&
      estimate.protocol == Protocol::kSimple && group.nodes > 1) {
    // Once started, NCCL runs two copies of each channel, and four of few fast ones.
    const double found = channel_count(graph, Algorithm::kRing);
    const bool again = graph.generation >= Generation::kHopper &&
                       graph.ring.intra_bytes_per_s > 45 * kGiga && 2 * found < 16;
    const double running = std::min(64.0, found * (again ? 4 : 2));
    if (std::floor(bytes / (running * group.nodes * group.per_node)) >= 64) {
      latency *= graph.generation == Generation::kVolta ? 1.9 : 1.4;
    }
  }
  return latency + bytes / rate;
}

CollectiveTime best_collective(const CommGraph& graph, Collective op, double bytes,
                               GroupShape group) {
  CollectiveTime best;
  if (group.nodes * group.per_node <= 1) {
    return best;
  }
  best.seconds = kInfinity;
  for (const Algorithm algorithm : kAllAlgorithms) {
    for (const Protocol protocol : kAllProtocols) {
      if (const auto one = estimate(graph, op, algorithm, protocol, group)) {
        const double seconds = seconds_of(*one, graph, op, bytes, group);
        if (seconds < best.seconds) {
          best = {algorithm, protocol, seconds};
        }
      }
    }
  }
  return best;
}

double collective_time_s(const CommTable& table, Collective op, double bytes, GroupShape group,
                         const Fabric& fabric) {
  if (group.nodes * group.per_node <= 1 || bytes <= 0) {
    return 0;
  }
  if (const auto measured = measured_time_s(table.measured, op, bytes, group)) {
    return *measured;
  }
  const CommShape& shape = table.shape(group.per_node);
  if (group.nodes == 1) {
    return best_collective(shape.inside, op, bytes, group).seconds;
  }
  return best_collective(limit_fabric(shape.across, fabric), op, bytes, group).seconds;
}

double send_time_s(const DevicePath& path, double bytes, bool between_nodes) {
  if (path.type == PathType::kLoc || bytes <= 0) {
    return 0;
  }
  if (!(path.bytes_per_s > 0)) {
    return kInfinity;
  }
  const std::size_t ring = at(Algorithm::kRing);
  const std::size_t simple = at(Protocol::kSimple);
  const double hop = between_nodes                 ? kNetUs[ring][simple]
                     : path.type <= PathType::kNvb ? kNvlinkUs[ring][simple]
                                                   : kPciUs[ring][simple];
  return (kBaseUs[ring][simple] + hop) * kMicro + bytes / path.bytes_per_s;
}

CommGraph limit_fabric(CommGraph graph, const Fabric& fabric) {
  for (ChannelSet* set : {&graph.ring, &graph.tree, &graph.nvls}) {
    set->nic_latency_s += fabric.latency_s;
    if (set->channels == 0) {
      continue;
    }
    const double share = fabric.bytes_per_s / set->channels;
    set->inter_bytes_per_s = std::min(set->inter_bytes_per_s, share);
    // NCCL takes the rate inside nodes for two nodes: a ring passes the NICs at it, a tree uses
    // both directions of the one hop.
    if (set != &graph.nvls) {
      set->intra_bytes_per_s =
          std::min(set->intra_bytes_per_s, share * (set == &graph.tree ? 2 : 1));
    }
  }
  return graph;
}

CommGraph slow_channels(CommGraph graph, double pace) {
  for (ChannelSet* set : {&graph.ring, &graph.tree, &graph.nvls}) {
    set->intra_bytes_per_s *= pace;
    set->inter_bytes_per_s *= pace;
  }
  return graph;
}

}  // namespace tapas::solver
