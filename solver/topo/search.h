#pragma once

#include "solver/topo/system.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

enum class Pattern : std::uint8_t { kBalancedTree = 1, kTree = 3, kRing = 4, kNvls = 5 };

struct TopoChannel {
  std::vector<std::uint32_t> gpus;  ///< in the order of the ring or chain; for NVLS only the first
  std::uint32_t net_in = 0;         ///< both only between nodes
  std::uint32_t net_out = 0;
};

/// The channels of one algorithm; rates per channel in GB/s.
struct TopoChannels {
  Pattern pattern = Pattern::kRing;
  std::vector<TopoChannel> channels;
  float intra_gbs = 0;
  float inter_gbs = 0;
  PathType intra = PathType::kLoc;
  PathType inter = PathType::kPix;
  float latency_us = 0;
  bool found = false;  ///< false: no path fits, a single slow channel stands in
};

struct TopoPlan {
  TopoChannels ring, tree, nvls;
  std::uint64_t steps = 0;  ///< what the search took
  bool cut_short = false;   ///< it met its limit; the best so far
};

/// kAsNccl takes every step that NCCL takes. kPruned leaves out attempts that only repeat
/// themselves or by a bound cannot be better; where NCCL gives up after its last step, it may find
/// more.
enum class SearchEffort : std::uint8_t { kPruned, kAsNccl };

/// Searches the channels as NCCL 2.28.9 does when a communicator starts (src/graph/search.cc), with
/// its limits on steps, and one for all of them together. `between_nodes`: the communicator has as
/// many GPUs on further nodes. Empty for one GPU, and between nodes without an interface.
[[nodiscard]] TopoPlan search_channels(const TopoSystem& system, bool between_nodes,
                                       SearchEffort effort = SearchEffort::kPruned);

/// The graph for the cost model.
[[nodiscard]] CommGraph comm_graph(const TopoSystem& system, const TopoPlan& plan);

}  // namespace tapas::solver
