#pragma once

#include "solver/search/step_search.h"

namespace tapas::solver {

/// The least l1 max(mem_stage) + l2 total_comm + l3 max(stage_time) of the document model
/// (docs/cost-model.md), over cuts, kinds of device groups, stages, replicas and micro-batch sizes,
/// each stage with the least recomputation that fits; of equal ones the shortest step. Exact: for
/// every level of memory and stage time that matters, dynamic programming over what is left, the
/// communication.
[[nodiscard]] SearchResult search_objective(const Job& job, const Fleet& fleet,
                                            const SolveOptions& options);

}  // namespace tapas::solver
