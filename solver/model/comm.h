#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tapas::solver {

/// How two devices reach each other, nearest first. Names and order are NCCL's: same device,
/// NVLink, NVLink over another GPU, chip-to-chip, one PCIe bridge, several bridges, chip-to-chip
/// and PCIe, NVLink to the neighbour of a NIC, through the CPU, across sockets, network, none.
enum class PathType : std::uint8_t {
  kLoc,
  kNvl,
  kNvb,
  kC2c,
  kPix,
  kPxb,
  kP2c,
  kPxn,
  kPhb,
  kSys,
  kNet,
  kDis
};
[[nodiscard]] std::string_view to_string(PathType type);

/// NVIDIA architectures with limits of their own in NCCL's model; kUnknown has none.
enum class Generation : std::uint8_t { kUnknown, kVolta, kAmpere, kHopper, kBlackwell };

/// The parallel channels that one algorithm spreads a message over.
struct ChannelSet {
  std::uint32_t channels = 0;    ///< 0 = not available
  double intra_bytes_per_s = 0;  ///< of one channel inside a node
  double inter_bytes_per_s = 0;  ///< of one channel between nodes
  PathType intra = PathType::kLoc;
  PathType inter = PathType::kPix;
  double nic_latency_s = 0;  ///< added to each hop between nodes
};

/// What carries the collectives of one group of devices.
struct CommGraph {
  ChannelSet ring, tree, nvls;
  bool plain_tree = false;  ///< all traffic of a tree leaves a node through one GPU
  Generation generation = Generation::kUnknown;
  bool same_devices = true;
  bool amd_host = false;
};

/// One way, as one device sees it when nobody else sends. No bytes_per_s: nothing is to be sent
/// (kLoc) or can be (kDis).
struct DevicePath {
  PathType type = PathType::kDis;
  double bytes_per_s = 0;
};

enum class Collective : std::uint8_t { kAllReduce, kAllGather, kReduceScatter };

/// One measured collective. `bytes` as collective_time_s() takes them.
struct MeasuredCollective {
  Collective op = Collective::kAllReduce;
  std::uint32_t nodes = 1;
  std::uint32_t devices = 0;  ///< on all nodes together
  double bytes = 0;
  double seconds = 0;
};

/// Group shapes of a node type: the first `per_node` devices of device_order(), inside one node or
/// with as many on each of several nodes.
struct CommShape {
  std::uint32_t per_node = 1;
  CommGraph inside;
  CommGraph across;
};

/// How the devices of a node type talk. Filled by the loader; empty = unknown.
struct CommTable {
  std::vector<CommShape> shapes;      ///< ascending per_node: 1, 2, 4, ..., all devices
  std::vector<DevicePath> paths;      ///< from device i to j at [i * devices + j], or one for all
  std::vector<DevicePath> nic_paths;  ///< from a device to its NIC, at most the NIC's rate; or one
  std::vector<MeasuredCollective> measured;  ///< where present they replace the model

  /// The smallest shape with at least that many devices per node. Requires shapes.
  [[nodiscard]] const CommShape& shape(std::uint32_t per_node) const;
  /// Both require shapes and devices of this node type.
  [[nodiscard]] DevicePath path(std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] DevicePath nic_path(std::uint32_t device) const;
};

/// For a node type without a topology: devices that share one fast link domain and all NICs.
[[nodiscard]] CommTable simple_comm_table(std::uint32_t devices, double fast_link_bytes_per_s,
                                          std::uint32_t nics, double nic_bytes_per_s);

}  // namespace tapas::solver
