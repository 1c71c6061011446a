#pragma once

#include <string_view>

/// Rates that NCCL 2.28.9 assigns to links (src/graph/topo.{h,cc}), in GB/s and single precision as
/// there: its search compares them for equality.
namespace tapas::solver {

constexpr float kLocalGbs = 5000;  ///< what is on one device

/// Bytes/s; undoes what single precision added.
[[nodiscard]] double bytes_per_s(float gbs);

/// Speed text as in sysfs, matched by prefix; anything unknown counts as Gen3, width 0 as 16 lanes.
[[nodiscard]] float pci_gbs(std::string_view speed, long width);

/// One NVLink of a GPU with that compute capability (times ten): about four fifths of the wire.
[[nodiscard]] float nvlink_gbs(int sm);

/// Between NUMA nodes.
[[nodiscard]] float socket_gbs(std::string_view arch, std::string_view vendor, long family,
                               long model);

}  // namespace tapas::solver
