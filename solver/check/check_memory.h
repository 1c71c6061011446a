#pragma once

#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// Bytes on one device, straight from the graph: the sentences of docs/cost-model.md, section
/// "Memory", once more. Kept apart from solver/cost on purpose.
class MemoryCheck {
 public:
  /// `job` must outlive it.
  explicit MemoryCheck(const Job& job);

  /// Parameters, gradients and optimizer state of the layers in `range`.
  [[nodiscard]] double state_bytes(const Plan& plan, LayerRange range) const;
  /// A stage that holds `range` at TP width `width` and `held` microbatches at once.
  [[nodiscard]] double stage_bytes(const Plan& plan, LayerRange range, std::uint32_t held) const;

 private:
  const Job& job_;
  std::vector<double> entering_;  ///< [layer]: activation bytes that come from earlier layers
};

}  // namespace tapas::solver
