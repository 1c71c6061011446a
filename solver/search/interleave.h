#pragma once

#include "solver/search/found.h"
#include "solver/search/solve.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// Stages per device group that the job considers, ascending; {1} without an interleaved schedule.
[[nodiscard]] std::vector<std::uint32_t> interleave_depths(const Job& job);

struct InterleaveResult {
  Found best;
  double bound_s = kNever;  ///< no interleaved row is faster
  std::uint64_t shapes = 0;
  std::uint64_t by_work = 0;
  std::uint64_t by_memory = 0;
  std::uint64_t left = 0;  ///< bounded below the best plan, but not cut
  std::uint64_t rows_timed = 0;
};

/// Rows of one kind with more than one stage per device group, for every spec and depth. Cuts are
/// balanced, then shifted one by one while that helps: near the best, not proven. The bound is the
/// work of the busiest group.
[[nodiscard]] InterleaveResult search_interleaved(const Job& job, const Fleet& fleet,
                                                  const SolveOptions& options,
                                                  const std::vector<Spec>& specs,
                                                  const std::vector<std::uint32_t>& depths,
                                                  double cutoff_s);

}  // namespace tapas::solver
