#pragma once

#include "solver/cost/layer_table.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tapas::solver {

/// What one device may hold and what a parameter costs it.
struct MemoryRule {
  double capacity_bytes = 0;  ///< reserve already taken off
  /// Parameter, gradient, and the device's share of the optimizer.
  double state_bytes_per_param = 0;
  double recompute_ratio = 0;  ///< extra flops allowed, of a stage's forward and backward flops
};
[[nodiscard]] MemoryRule memory_rule(const Job& job, std::uint32_t node_type,
                                     std::uint32_t replicas);

/// Bytes that one device of a stage holds, with the recompute flags given per layer of the model.
[[nodiscard]] double stage_memory_bytes(const LayerTable& table, const MemoryRule& rule,
                                        LayerRange range, std::uint32_t in_flight,
                                        const std::vector<bool>& checkpoint);

/// How many times as long a stage takes as on a healthy node.
struct StagePace {
  double compute = 1;      ///< its slowest device
  double collectives = 1;  ///< of its TP group: inside its node
};

/// The recomputation that lets a stage fit at least cost. Times are those of a healthy node,
/// whatever pace it was chosen for.
struct StageFit {
  double forward_s = 0;   ///< compute of one microbatch
  double backward_s = 0;  ///< compute, recomputation included
  double forward_comm_s = 0;
  double backward_comm_s = 0;  ///< recomputation included
  double saved_s = 0;  ///< at most this a better choice could save, at its pace; 0 when exact
  struct Recomputed {
    std::uint32_t type = 0;
    std::uint32_t layers = 0;
  };
  std::vector<Recomputed> recomputed;  ///< how many layers of which types

  [[nodiscard]] double total_s() const {
    return forward_s + backward_s + forward_comm_s + backward_comm_s;
  }
};

/// Exact least recomputation time at a pace, under memory and recompute limits; nothing when no
/// choice fits. Layers of one type are interchangeable, so this is a small covering problem over
/// type counts.
[[nodiscard]] std::optional<StageFit> fit_stage(const LayerTable& table, const MemoryRule& rule,
                                                LayerRange range, std::uint32_t in_flight,
                                                StagePace pace = {});

/// Least bytes a stage can be brought to within the recompute limit, for explanations.
[[nodiscard]] double least_memory_bytes(const LayerTable& table, const MemoryRule& rule,
                                        LayerRange range, std::uint32_t in_flight);

/// Sets flags for the first layers of each type in the range.
void mark_recomputed(const LayerTable& table, LayerRange range, const StageFit& fit,
                     std::vector<bool>& checkpoint);

}  // namespace tapas::solver
