#pragma once

#include "solver/cost/plan_evaluator.h"
#include "solver/model/cluster_state.h"
#include "solver/model/plan.h"

#include <cstdint>

namespace tapas::solver {

/// Changes one plan for measured slowdowns. Every step is exact for what it decides, keeps memory
/// within limits and never makes its own objective worse.
class RowRepair {
 public:
  /// Slowdowns up to here are noise: no layer is so small that moving it would help.
  static constexpr double kSlow = 1.02;

  /// All must outlive it. `evaluated` counts the pipelines looked at.
  RowRepair(PlanEvaluator& evaluator, const ClusterState& state, std::uint64_t& evaluated)
      : evaluator_(evaluator), state_(state), evaluated_(evaluated) {}

  /// For each replica with a slow stage: all cuts between that stage and each neighbour, the best
  /// by the exact time of the row; repeated while it helps. Where replicas must be cut alike, one
  /// cut for all by the slowest. With `recompute`, flags are added where the new cut needs them.
  void cut_pairs(Plan& plan, bool recompute);

  /// Moves single microbatches from the slowest replica to the one that takes them best, until no
  /// move lowers the slowest: the exact minimum, as a replica's time grows with its count.
  void balance_microbatches(Plan& plan);

 private:
  /// Rows that one cut change concerns.
  struct Scope {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  [[nodiscard]] double row_time_s(const Plan& plan, std::uint32_t replica);
  [[nodiscard]] double scope_time_s(const Plan& plan, Scope scope);
  /// Whether a stage fits in every row of the scope; with `recompute` adds the flags it needs.
  [[nodiscard]] bool make_fit(Plan& plan, Scope scope, std::uint32_t stage, bool recompute);
  /// Best cut between `left` and `left` + 1. True when the plan changed.
  bool cut_pair(Plan& plan, Scope scope, std::uint32_t left, bool recompute);

  PlanEvaluator& evaluator_;
  const ClusterState& state_;
  std::uint64_t& evaluated_;
};

}  // namespace tapas::solver
