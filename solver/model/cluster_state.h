#pragma once

#include "base/ids.h"

#include <vector>

namespace tapas::solver {

/// Measured deviation of the cluster from its description. Slowdown: 1.0 = healthy, 1.6 = takes
/// 1.6 times as long.
struct ClusterState {
  std::vector<double> device_slowdown;  ///< per RankId; empty = all healthy
  std::vector<bool> drained;            ///< per NodeId; empty = none

  [[nodiscard]] double slowdown(RankId rank) const {
    return rank.value() < device_slowdown.size() ? device_slowdown[rank.value()] : 1.0;
  }
  [[nodiscard]] bool is_drained(NodeId node) const {
    return node.value() < drained.size() && drained[node.value()];
  }
};

}  // namespace tapas::solver
