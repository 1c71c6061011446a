#pragma once

#include "base/result.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace tapas::solver {

struct SolveOptions {
  std::stop_token stop;  ///< Stops with the best so far.
  /// Called now and then from the solving thread with the share of the search done (0..1) and the
  /// best step time so far (infinity before the first).
  std::function<void(double done, double best_step_s)> progress;
  /// Calls `part` with every index below `count`, in any order and from any threads, and returns
  /// when all are done. Empty = one after the other. What the search finds does not depend on it.
  std::function<void(std::size_t count, const std::function<void(std::size_t part)>& part)>
      parallel_for;
  /// What branch and bound may spend to close the gap, in stages times microbatches of pipelines
  /// run: 1 to 10 ns each.
  std::uint64_t branch_budget = 50'000'000;
};

/// What is proven of a plan, and how.
struct Certificate {
  /// No other cuts, recomputation, widths, node types, replicas, stages or micro-batch size give a
  /// better plan in any layout (place.h). Plan::predicted.lower_bound_s speaks of any placement.
  bool optimal = false;
  double objective = 0;             ///< of the document model; 0 in the physical one
  double objective_bound = 0;       ///< no plan of the search space has less
  std::uint64_t shapes = 0;         ///< combinations of widths, stages, replicas and so on
  std::uint64_t rows_timed = 0;     ///< cuts whose exact time was worked out
  std::uint64_t rows_branched = 0;  ///< partial rows that branch and bound looked at
  struct Reason {
    std::string why;
    std::uint64_t shapes = 0;
  };
  std::vector<Reason> ruled_out;    ///< none counted twice
  std::vector<std::string> undone;  ///< what was not looked at
  bool bounds_all = true;           ///< false: the bounds do not speak of all that is undone
};

struct SolveOutcome {
  Plan plan;                        ///< epoch 0; passes check_plan()
  bool complete = true;             ///< false when stopped early
  std::uint64_t shapes_tried = 0;   ///< (TP, PP, DP, SP) combinations looked at
  std::uint64_t shapes_pruned = 0;  ///< ruled out by a bound or by memory without a full search
  Certificate certificate;
  std::string summary;  ///< one sentence: shape, step time, bound, gap
};

/// Finds a plan for a healthy cluster (spares left out): the shortest step in the physical model,
/// the least objective in the document model. Deterministic for a job, whatever the machine and
/// however many threads. kInfeasible explains which stage lacks how much and what would fit.
[[nodiscard]] Result<SolveOutcome> solve(const Job& job, const SolveOptions& options = {});

}  // namespace tapas::solver
