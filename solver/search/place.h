#pragma once

#include "solver/model/plan.h"
#include "solver/search/shapes.h"

#include <vector>

namespace tapas::solver {

/// Which groups become neighbours. In both, a node first fills with the same stage of several
/// replicas, because gradients weigh more than boundary activations.
enum class Layout {
  kStagesTogether,    ///< then the next stage of these replicas: pipelines stay under one ToR
  kReplicasTogether,  ///< then the same stage of further replicas: each ring stays under one ToR,
                      ///< or else in one pod, where free nodes allow
};

/// [replica][stage]. Requires stages * replicas groups of the shape's width to fit the pool.
[[nodiscard]] std::vector<std::vector<Position>> place(const Cluster& cluster, const Pool& pool,
                                                       const Shape& shape, Layout layout);

}  // namespace tapas::solver
