#include "solver/search/found.h"

#include "base/check.h"

#include <algorithm>

namespace tapas::solver {
namespace {

std::vector<std::uint32_t> counts_of(const Fleet& fleet, const Spec& spec) {
  return shares(fleet.sizes()[spec.size]->job.total_microbatches(), spec.replicas,
                spec.chunks > 1 ? spec.stages : 1);
}

RowProblem problem_of(const Fleet& fleet, const Spec& spec) {
  const Fleet::Size& size = *fleet.sizes()[spec.size];
  RowProblem problem = spec.mixed
                           ? fleet.problem(size, spec.sharding.sequence_parallel, spec.replicas)
                           : fleet.problem(size, spec.sharding, spec.replicas);
  problem.microbatches = counts_of(fleet, spec).front();
  return problem;
}

}  // namespace

Bench::Bench(const Fleet& fleet, const Spec& spec)
    : problem(problem_of(fleet, spec)),
      costs(problem),
      times(fleet.sizes()[spec.size]->job.cluster, fleet.pools(), *fleet.sizes()[spec.size]->model,
            costs, counts_of(fleet, spec)) {}

Plan plan_of(const Job& job, const Fleet& fleet, const Found& found) {
  Bench bench(fleet, found.spec);
  const std::uint32_t layers = job.graph.layer_count();
  const std::uint32_t groups = found.row.stages() / found.spec.chunks;
  Plan plan;
  plan.job = job.name;
  plan.schedule = job.schedule;
  plan.interleave = found.spec.chunks;
  plan.micro_batch_size = fleet.sizes()[found.spec.size]->job.graph.micro_batch_size;
  plan.pp_splits = found.row.cuts;
  plan.microbatches = counts_of(fleet, found.spec);
  plan.tp_width.assign(layers, 1);
  plan.checkpoint.assign(layers, false);
  for (std::uint32_t k = 0; k < found.row.stages(); ++k) {
    const LayerTable& table = *bench.problem.kinds[found.row.kinds[k]].table;
    const LayerRange range = found.row.range(k, layers);
    std::fill(plan.tp_width.begin() + range.first, plan.tp_width.begin() + range.last,
              table.sharding().width);
    const StageFit* fit = found.fits.empty()
                              ? bench.costs.fit(found.row.kinds[k], groups - 1 - k, range)
                              : &found.fits[k];
    TAPAS_CHECK(fit != nullptr, "stage {} of the row found does not fit", k);
    mark_recomputed(table, range, *fit, plan.checkpoint);
  }
  if (found.spec.sharding.sequence_parallel) {
    plan.sp_width = *std::max_element(plan.tp_width.begin(), plan.tp_width.end());
  }
  const std::vector<std::uint32_t> kinds(found.row.kinds.begin(), found.row.kinds.begin() + groups);
  plan.placement = bench.times.placed(kinds, found.layout)->placement;
  return plan;
}

}  // namespace tapas::solver
