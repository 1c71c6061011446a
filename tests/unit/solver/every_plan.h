#pragma once

#include "jobs.h"
#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/stage_fit.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

/// Every plan of a small job, one by one: what the search is held against.
namespace tapas::solver::testing {

/// Layers that all differ on one or two node types with few devices; limits tight or loose.
[[nodiscard]] Job random_small_job(std::uint64_t seed);

struct EveryPlan {
  Plan plan;             ///< the best by step time; no placement when none fits
  double step_s = 0;     ///< of that
  double objective = 0;  ///< least objective of the document model, of any plan
  std::uint64_t plans = 0;
};

/// Goes through replicas, stages, TP widths and node types of every stage, cuts, recompute flags
/// and layouts. Recompute flags are chosen per stage among all subsets of its layers, the fastest
/// that fits, as stages do not share memory.
[[nodiscard]] EveryPlan try_every_plan(const Job& job);

}  // namespace tapas::solver::testing
