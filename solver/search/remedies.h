#pragma once

#include "solver/search/solve.h"

#include <string>
#include <vector>

namespace tapas::solver {

/// One change to a job that no plan fits, after which solve() finds one.
struct Remedy {
  std::string change;  ///< "limits.recompute_ratio 0.23 instead of 0.15"
  Job job;             ///< changed
  SolveOutcome outcome;
};

/// The smallest change of each kind that makes the job solvable, each proved by solving the changed
/// job; kinds in this order, from what costs nothing to what costs machines: more TP widths, other
/// stage counts, smaller microbatches, more recomputation, a longer step, more memory per device,
/// more nodes. Requires a valid job that solve() finds infeasible. Amounts are exact to 1 % of
/// recomputation, 0.1 GB (or 1 % of a smaller memory) and one node.
[[nodiscard]] std::vector<Remedy> find_remedies(const Job& job, const SolveOptions& options = {});

}  // namespace tapas::solver
