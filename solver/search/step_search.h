#pragma once

#include "solver/search/found.h"
#include "solver/search/solve.h"

namespace tapas::solver {

struct SearchResult {
  Found best;          ///< no cuts: nothing found
  double bound_s = 0;  ///< no plan of the search space has a shorter step
  bool complete = true;
  Certificate certificate;
};

/// The shortest step. Rows of one kind first, by the bound of their work, for a good plan; then
/// rows that mix kinds, by limits on the stage bounds; then branch and bound on what may still hold
/// a faster row; then interleaved rows.
[[nodiscard]] SearchResult search_step_time(const Job& job, const Fleet& fleet,
                                            const SolveOptions& options);

}  // namespace tapas::solver
