#pragma once

#include "solver/cost/layer_table.h"
#include "solver/cost/pipeline.h"
#include "solver/cost/stage_fit.h"
#include "solver/search/shapes.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tapas::solver {

/// Cutting the layers of one shape: what is the same for all its replicas.
struct SplitProblem {
  const LayerTable* table = nullptr;
  MemoryRule rule;
  Schedule schedule = Schedule::k1f1b;
  std::uint32_t stages = 1;
  std::uint32_t microbatches = 1;
  std::uint32_t groups_per_node = 1;
  double near_s = 0;  ///< least one-way delay inside a node
  double far_s = 0;   ///< least one-way delay between nodes
  double busy_s = 0;  ///< least that sending adds to a stage's forward, and to its backward
  StepTail tail;      ///< least
};

struct Split {
  std::vector<std::uint32_t> cuts;
  double value = 0;  ///< of what was minimised
};

/// Minimises over all cuts (and the recomputation each stage needs) the largest of the stages'
/// lower bounds on the step time, by dynamic programming: no plan of this shape is faster than the
/// value. The bound of stage b with layers [i, j), docs/cost-model.md section "Bounds":
///   before(i) + m tau(b, i, j) + idle(after(j), w_b, F, B) + tail(i, j).
/// Nothing when no cut has a value below `cutoff_s` or fits memory.
[[nodiscard]] std::optional<Split> bottleneck_split(const SplitProblem& problem, double cutoff_s);

/// Minimises the longest stage time of one microbatch.
[[nodiscard]] std::optional<Split> balanced_split(const SplitProblem& problem);

/// Minimises the largest memory of a stage under as much recomputation as the rule allows; the
/// value is in bytes. Nothing when no cut is below `cutoff_bytes`.
[[nodiscard]] std::optional<Split> leanest_split(const SplitProblem& problem, double cutoff_bytes);

/// The stage that holds `range`; nothing when it cannot fit.
[[nodiscard]] std::optional<StageFit> fit(const SplitProblem& problem, std::uint32_t stage,
                                          LayerRange range);

/// Exact time of the cuts with the given delays after each stage, tail included; infinite when a
/// stage does not fit.
[[nodiscard]] double split_time_s(const SplitProblem& problem,
                                  const std::vector<std::uint32_t>& cuts,
                                  const std::vector<double>& delay_s);

/// Hill climbing on split_time_s: boundary shifts by one layer, single or a run of boundaries
/// together.
void polish(const SplitProblem& problem, const std::vector<double>& delay_s, Split& split);

}  // namespace tapas::solver
