#pragma once

#include "solver/search/reach.h"
#include "solver/search/row.h"
#include "solver/search/row_time.h"

#include <cstdint>
#include <optional>
#include <stop_token>

namespace tapas::solver {

/// What branch and bound over cuts and kinds found out about rows with so many stages.
struct Branched {
  bool complete = false;  ///< false: the budget was spent, or it was stopped
  /// When complete: no row with so many stages is faster, placed as well as can be.
  double bound_s = 0;
  std::optional<Row>
      row;  ///< faster than the cutoff, in the best layout; the fastest when complete
  double step_s = kNever;
  std::uint64_t nodes = 0;
  std::uint64_t work = 0;  ///< of the budget
};

/// Looks at every row of the problem with so many stages that may be faster than `cutoff_s`, stage
/// by stage from the first, by exact step times. The budget counts stages times microbatches of the
/// pipelines run, and as much for the bounds, so the outcome is the same on every machine.
[[nodiscard]] Branched branch(RowCosts& costs, RowTimes& times, std::uint32_t stages,
                              double cutoff_s, std::uint64_t budget, const std::stop_token& stop);

}  // namespace tapas::solver
