#pragma once

#include "solver/model/plan.h"

#include <optional>

namespace tapas::solver {

/// Bytes that all devices together send in a step, by the tier they cross.
struct TierBytes {
  double node = 0;  ///< stay inside a node
  double tor = 0;   ///< between nodes under one ToR
  double pod = 0;
  double core = 0;

  [[nodiscard]] double total() const { return node + tor + pod + core; }
};
struct Traffic {
  TierBytes tp, pp, dp;
};
/// Activations and their gradients over stage boundaries, gradients round the rings of replicas.
[[nodiscard]] Traffic traffic_of(const Job& job, const Plan& plan);

/// The same plan where a launcher would put it that numbers its ranks TP first, then replicas, then
/// stages, and goes through the nodes in the order of the cluster file. Nothing when that order
/// has no room for it.
[[nodiscard]] std::optional<Plan> in_naive_order(const Job& job, const Plan& plan);

}  // namespace tapas::solver
