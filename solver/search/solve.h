#pragma once

#include "base/result.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace tapas::solver {

struct SolveOptions {
  std::stop_token stop;  ///< Stops with the best so far.
  /// Called now and then from the solving thread with the share of the outer search done (0..1)
  /// and the best step time so far (infinity before the first).
  std::function<void(double done, double best_step_s)> progress;
};

struct SolveOutcome {
  Plan plan;                        ///< epoch 0; passes check_plan()
  bool complete = true;             ///< false when stopped early
  std::uint64_t shapes_tried = 0;   ///< (TP, PP, DP, SP) combinations looked at
  std::uint64_t shapes_pruned = 0;  ///< ruled out by a bound or by memory without a full search
  std::string summary;              ///< one sentence: shape, step time, bound, gap
};

/// Finds a plan for a healthy cluster (spares left out). Deterministic for a job, whatever the
/// machine. kInfeasible explains which stage lacks how much and what would fit.
[[nodiscard]] Result<SolveOutcome> solve(const Job& job, const SolveOptions& options = {});

}  // namespace tapas::solver
