#include "solver/search/place.h"

#include <algorithm>

namespace tapas::solver {

std::vector<std::vector<Position>> place(const Cluster& cluster, const Pool& pool,
                                         const Shape& shape, Layout layout) {
  const std::uint16_t width = shape.sharding.width;
  const std::uint32_t groups = cluster.node_types[pool.node_type].devices / width;
  const std::uint32_t block =
      layout == Layout::kStagesTogether ? std::min(groups, shape.replicas) : shape.replicas;
  std::vector<std::vector<Position>> placement(shape.replicas, std::vector<Position>(shape.stages));
  std::uint32_t slot = 0;
  for (std::uint32_t first = 0; first < shape.replicas; first += block) {
    const std::uint32_t last = std::min(first + block, shape.replicas);
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      for (std::uint32_t r = first; r < last; ++r, ++slot) {
        Position& position = placement[r][s];
        position.node = pool.nodes[slot / groups];
        for (std::uint16_t d = 0; d < width; ++d) {
          position.devices.push_back(static_cast<std::uint16_t>(slot % groups * width + d));
        }
      }
    }
  }
  return placement;
}

}  // namespace tapas::solver
