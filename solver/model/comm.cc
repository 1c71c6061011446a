#include "solver/model/comm.h"

#include "base/check.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tapas::solver {
namespace {

/// PCIe Gen5 x16 reaches 48 GB/s, the slowest NVLink pair 60: what is faster is no PCIe.
constexpr double kFastestPcieBytesPerS = 50e9;

ChannelSet one_channel(double intra, double inter, PathType inside) {
  ChannelSet set;
  set.channels = intra > 0 && inter > 0 ? 1 : 0;
  set.intra_bytes_per_s = intra;
  set.inter_bytes_per_s = inter;
  set.intra = inside;
  return set;
}

}  // namespace

std::string_view to_string(PathType type) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
  return kNames[static_cast<std::size_t>(type)];
}

const CommShape& CommTable::shape(std::uint32_t per_node) const {
  TAPAS_CHECK(!shapes.empty(), "a table of group shapes without shapes");
  const auto at = std::find_if(shapes.begin(), shapes.end(), [per_node](const CommShape& shape) {
    return shape.per_node >= per_node;
  });
  return at == shapes.end() ? shapes.back() : *at;
}

DevicePath CommTable::path(std::uint32_t from, std::uint32_t to) const {
  if (from == to) {
    return {PathType::kLoc, 0};
  }
  return paths.size() == 1 ? paths.front() : paths[from * nic_paths.size() + to];
}

DevicePath CommTable::nic_path(std::uint32_t device) const {
  return nic_paths.size() == 1 ? nic_paths.front() : nic_paths[device];
}

CommTable simple_comm_table(std::uint32_t devices, double fast_link_bytes_per_s, std::uint32_t nics,
                            double nic_bytes_per_s) {
  const PathType inside =
      fast_link_bytes_per_s > kFastestPcieBytesPerS ? PathType::kNvl : PathType::kPhb;
  // NCCL gives each device its part of the NICs, at least one.
  const std::uint32_t nics_of_device = devices == 0 ? 0 : (nics + devices - 1) / devices;
  CommTable table;
  for (std::uint32_t p = 1;; p = std::min(2 * p, devices)) {
    CommShape shape;
    shape.per_node = p;
    shape.inside.ring = one_channel(fast_link_bytes_per_s, fast_link_bytes_per_s, inside);
    shape.inside.tree = shape.inside.ring;
    const double nic_total = nic_bytes_per_s * std::min(p * nics_of_device, nics);
    const double out = p == 1 ? nic_total : std::min(fast_link_bytes_per_s, nic_total);
    shape.across.ring = one_channel(out, out, inside);
    shape.across.tree =
        one_channel(std::min(2 * out, std::max(out, fast_link_bytes_per_s)), out, inside);
    table.shapes.push_back(shape);
    if (p >= devices) {
      break;
    }
  }
  table.paths = {{inside, fast_link_bytes_per_s}};
  table.nic_paths = {{nics > 0 ? PathType::kPix : PathType::kDis, nics > 0 ? nic_bytes_per_s : 0}};
  return table;
}

}  // namespace tapas::solver
