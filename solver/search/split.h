#pragma once

#include "solver/cost/layer_table.h"
#include "solver/cost/pipeline.h"
#include "solver/cost/stage_fit.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tapas::solver {

/// Cutting the layers of one shape for memory: what is the same for all its replicas.
struct SplitProblem {
  const LayerTable* table = nullptr;
  MemoryRule rule;
  Schedule schedule = Schedule::k1f1b;
  std::uint32_t stages = 1;
  std::uint32_t microbatches = 1;
};

struct Split {
  std::vector<std::uint32_t> cuts;
  double value = 0;  ///< of what was minimised
};

/// Minimises the largest memory of a stage under as much recomputation as the rule allows; the
/// value is in bytes. Nothing when no cut is below `cutoff_bytes`. O(stages * layers^2).
[[nodiscard]] std::optional<Split> leanest_split(const SplitProblem& problem, double cutoff_bytes);

}  // namespace tapas::solver
