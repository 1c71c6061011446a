#pragma once

#include "base/result.h"
#include "solver/topo/search.h"

#include <cstdint>
#include <string>

namespace tapas::solver {

/// A server as the solver sees it.
struct TopoNode {
  CommTable comm;
  std::uint32_t devices = 0;
  double fast_link_bytes_per_s = 0;  ///< between the two devices that are worst connected
  std::uint32_t nics = 0;            ///< cards that serve a device
  double nic_bytes_per_s = 0;        ///< of the slowest of them, behind its PCIe link
};

/// Searches the channels of groups of 1, 2, 4, ... and all devices, inside the node and over
/// several. Requires GPUs.
[[nodiscard]] TopoNode describe_node(const NcclTopo& topo);

/// Reads a file and describes the server; keeps what it found for the last few files.
[[nodiscard]] Result<TopoNode> load_topo_node(const std::string& path);

/// A group of the first `per_node` devices whose links became slower after it started: the channels
/// of the healthy server at the pace of the slowest. Without a link that it used it stands still:
/// no channels. Both topologies list the same devices.
[[nodiscard]] CommGraph running_graph(const NcclTopo& healthy, const NcclTopo& now,
                                      std::uint32_t per_node, bool between_nodes);

}  // namespace tapas::solver
