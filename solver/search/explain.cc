#include "solver/search/explain.h"

#include "solver/search/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kGigabyte = 1e9;

struct Leanest {
  Shape shape;
  Split split;
  double bytes = std::numeric_limits<double>::infinity();
};

SplitProblem memory_problem(PlanEvaluator& evaluator, const Shape& shape, double recompute_ratio) {
  const Job& job = evaluator.job();
  SplitProblem problem;
  problem.table = &evaluator.table(shape.sharding);
  problem.rule = memory_rule(job, shape.sharding.node_type, shape.replicas);
  problem.rule.recompute_ratio = recompute_ratio;
  problem.rule.capacity_bytes = std::numeric_limits<double>::infinity();
  problem.schedule = job.schedule;
  problem.stages = shape.stages;
  problem.microbatches = shape.microbatches;
  return problem;
}

/// Memory per device is least with most replicas: ZeRO's shares and the microbatches in flight
/// shrink.
std::vector<Shape> most_replicas(const std::vector<Shape>& shapes) {
  std::map<std::pair<Sharding, std::uint32_t>, Shape> most;
  for (const Shape& shape : shapes) {
    Shape& kept = most.try_emplace({shape.sharding, shape.stages}, shape).first->second;
    if (shape.replicas > kept.replicas) {
      kept = shape;
    }
  }
  std::vector<Shape> result;
  for (const auto& [key, shape] : most) {
    result.push_back(shape);
  }
  return result;
}

Leanest leanest(PlanEvaluator& evaluator, const std::vector<Shape>& shapes,
                double recompute_ratio) {
  Leanest best;
  for (const Shape& shape : most_replicas(shapes)) {
    const SplitProblem problem = memory_problem(evaluator, shape, recompute_ratio);
    if (auto split = leanest_split(problem, best.bytes)) {
      best = {shape, *split, split->value};
    }
  }
  return best;
}

}  // namespace

std::string explain_infeasible(PlanEvaluator& evaluator, const Pool& pool,
                               const std::vector<Shape>& shapes) {
  const Job& job = evaluator.job();
  if (shapes.empty()) {
    return fmt::format(
        "no combination of TP width and {} to {} stages fits {} nodes of {} devices: allow fewer "
        "stages or narrower TP",
        job.search.min_stages, job.search.max_stages, pool.nodes.size(),
        job.cluster.node_types[pool.node_type].devices);
  }
  const double ratio = job.limits.recompute_ratio;
  const Leanest best = leanest(evaluator, shapes, ratio);
  const double cap = memory_rule(job, pool.node_type, 1).capacity_bytes;
  const SplitProblem problem = memory_problem(evaluator, best.shape, ratio);
  std::uint32_t worst = 0;
  double worst_bytes = 0;
  for (std::uint32_t s = 0; s < best.shape.stages; ++s) {
    const LayerRange range{best.split.cuts[s], s + 1 < best.shape.stages ? best.split.cuts[s + 1]
                                                                         : problem.table->layers()};
    const double bytes =
        least_memory_bytes(*problem.table, problem.rule, range,
                           in_flight(job.schedule, best.shape.stages, s, best.shape.microbatches));
    if (bytes > worst_bytes) {
      worst_bytes = bytes;
      worst = s;
    }
  }
  std::string text = fmt::format(
      "no plan fits: with TP {} x PP {} x DP {}, the leanest, stage {} needs {:.1f} GB of {:.1f} "
      "GB "
      "even with as much recomputation as the limit of {:.0f} % allows",
      best.shape.sharding.width, best.shape.stages, best.shape.replicas, worst,
      worst_bytes / kGigabyte, cap / kGigabyte, ratio * 100);

  std::vector<std::string> remedies;
  constexpr double kFullRecompute = 1;
  if (const Leanest full = leanest(evaluator, shapes, kFullRecompute); full.bytes <= cap) {
    remedies.push_back(fmt::format("full recomputation (TP {} x PP {} x DP {}, {:.1f} GB)",
                                   full.shape.sharding.width, full.shape.stages,
                                   full.shape.replicas, full.bytes / kGigabyte));
  }
  Job wider = job;
  wider.search.tp_widths.clear();
  wider.search.min_stages = 1;
  wider.search.max_stages = job.graph.layer_count();
  const Leanest free = leanest(evaluator, list_shapes(wider, pool), ratio);
  if (free.bytes <= cap) {
    remedies.push_back(fmt::format("{} stages at TP {} ({:.1f} GB)", free.shape.stages,
                                   free.shape.sharding.width, free.bytes / kGigabyte));
  }
  const double reserve = 1 - job.limits.memory_reserve_ratio;
  remedies.push_back(fmt::format("devices with {:.1f} GB", best.bytes / reserve / kGigabyte));
  text += "; what would fit: ";
  for (std::size_t k = 0; k < remedies.size(); ++k) {
    text += (k > 0 ? ", or " : "") + remedies[k];
  }
  return text;
}

}  // namespace tapas::solver
