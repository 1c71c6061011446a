#pragma once

#include "solver/model/plan.h"
#include "solver/search/shapes.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// Which groups become neighbours. In the first two a node first fills with the same stage of
/// several replicas, because gradients weigh more than boundary activations.
enum class Layout {
  kStagesTogether,    ///< then the next stage of these replicas: pipelines stay under one ToR
  kReplicasTogether,  ///< then the same stage of further replicas: each ring stays under one ToR,
                      ///< or else in one pod, where free nodes allow
  kRowsTogether,      ///< a node fills with the stages of one replica
};
inline constexpr std::uint32_t kLayouts = 3;

/// A device group of a row: its pool, as an index, and its width.
struct PlacedGroup {
  std::uint32_t pool = 0;
  std::uint16_t width = 1;
};

/// [replica][group] for replicas of a row. Every group takes the first free run of its width, so
/// widths that divide one another and the node's devices leave no gap. Empty when there is no room.
[[nodiscard]] std::vector<std::vector<Position>> place(const Cluster& cluster,
                                                       const std::vector<Pool>& pools,
                                                       const std::vector<PlacedGroup>& row,
                                                       std::uint32_t replicas, Layout layout);

}  // namespace tapas::solver
