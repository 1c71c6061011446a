#include "solver/search/solve.h"

#include "base/check.h"
#include "solver/check/check_plan.h"
#include "solver/cost/document_model.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/search/anneal.h"
#include "solver/search/explain.h"
#include "solver/search/place.h"
#include "solver/search/shapes.h"
#include "solver/search/split.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A split whose exact time is this close to the best plan is worth polishing.
constexpr double kPolishWithin = 1.03;

class Search {
 public:
  Search(const Job& job, const SolveOptions& options)
      : job_(job),
        options_(options),
        evaluator_(job),
        pool_(usable_nodes(job.cluster)),
        shapes_(list_shapes(job, pool_)),
        bound_(shapes_.size()) {
    for (std::size_t k = 0; k < shapes_.size(); ++k) {
      bound_[k] = work_bound_s(shapes_[k]);
    }
  }

  Result<SolveOutcome> run() {
    if (job_.search.anneal) {
      anneal_shapes();
    }
    enumerate();
    if (plan_.placement.empty()) {
      if (!outcome_.complete) {
        return fail(ErrorCode::kTimeout, "job {}: stopped before a first plan was found",
                    job_.name);
      }
      return fail(ErrorCode::kInfeasible, "job {}: {}", job_.name,
                  explain_infeasible(evaluator_, pool_, shapes_));
    }
    return finish();
  }

 private:
  /// The busiest stage does at least its share of the work, and holds at least its share of the
  /// parameters: cheap, true for every plan of the shape.
  double work_bound_s(const Shape& shape) {
    const LayerTable& table = evaluator_.table(shape.sharding);
    const LayerCost sum = table.sum({0, table.layers()});
    const double once = sum.times.forward_s + sum.times.backward_s + sum.times.forward_comm_s +
                        sum.times.backward_comm_s;
    return shape.microbatches * once / shape.stages;
  }

  SplitProblem problem_of(const Shape& shape) {
    SplitProblem p;
    p.table = &evaluator_.table(shape.sharding);
    p.rule = memory_rule(job_, shape.sharding.node_type, shape.replicas);
    p.schedule = job_.schedule;
    p.stages = shape.stages;
    p.microbatches = shape.microbatches;
    double least = kInfinity;
    for (std::uint32_t l = 1; l < p.table->layers(); ++l) {
      least = std::min(least, p.table->cut_bytes(l));
    }
    const NodeType& node = job_.cluster.node_types[shape.sharding.node_type];
    p.groups_per_node = node.devices / shape.sharding.width;
    const auto hop = [&](const Link& link) {
      return evaluator_.model().hop(link, shape.sharding, least, shape.stages);
    };
    if (shape.stages > 1) {
      const Hop far = hop(best_link_out(job_.cluster, shape.sharding.node_type));
      p.far_s = far.delay_s;
      p.near_s = std::min(p.far_s, hop(link_inside(node)).delay_s);
      p.busy_s = far.busy_s;
    }
    p.tail = evaluator_.model().step_tail(
        best_ring(job_.cluster, shape.sharding.node_type, shape.sharding.width, shape.replicas),
        shape.sharding);
    return p;
  }

  void enumerate() {
    std::vector<std::size_t> order(shapes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return bound_[a] < bound_[b]; });
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (bound_[order[k]] >= best_s_) {  // the rest is bounded no lower
        outcome_.shapes_tried += order.size() - k;
        outcome_.shapes_pruned += order.size() - k;
        break;
      }
      if (stopped()) {
        break;
      }
      look_at(order[k], /*keep=*/!job_.search.anneal);
      report(static_cast<double>(k + 1) / static_cast<double>(order.size()));
    }
    report(1);
  }

  /// Tightens the shape's bound; when it may hold a better plan, finds the best one it can.
  void look_at(std::size_t index, bool keep) {
    ++outcome_.shapes_tried;
    const Shape& shape = shapes_[index];
    const SplitProblem problem = problem_of(shape);
    const auto bottleneck = bottleneck_split(problem, best_s_);
    if (!bottleneck) {
      bound_[index] = kInfinity;  // of the plans that could still improve
      ++outcome_.shapes_pruned;
      return;
    }
    bound_[index] = std::max(bound_[index], bottleneck->value);
    if (keep) {
      realise(shape, problem, *bottleneck);
    }
  }

  /// Best plan found for a shape, kept when it beats the incumbent. Returns its step time.
  double realise(const Shape& shape, const SplitProblem& problem, const Split& bottleneck) {
    double best = kInfinity;
    for (const Layout layout : {Layout::kStagesTogether, Layout::kReplicasTogether}) {
      Plan plan = placed(shape, layout);
      const SplitProblem real = with_real_tail(problem, plan);
      const std::vector<double> delays = worst_delays(plan);
      Split split{bottleneck.cuts, split_time_s(real, bottleneck.cuts, delays)};
      if (const auto balanced = balanced_split(problem)) {
        const double time = split_time_s(real, balanced->cuts, delays);
        if (time < split.value) {
          split = {balanced->cuts, time};
        }
      }
      if (split.value < best_s_ * kPolishWithin) {
        polish(real, delays, split);
      }
      apply(real, split, plan);
      const double step = evaluator_.step_time_s(plan, {});
      best = std::min(best, step);
      if (step < best_s_) {
        best_s_ = step;
        plan_ = std::move(plan);
      }
      if (shape.replicas == 1) {
        break;
      }
    }
    return best;
  }

  Plan placed(const Shape& shape, Layout layout) {
    Plan plan;
    plan.job = job_.name;
    plan.schedule = job_.schedule;
    plan.tp_width.assign(job_.graph.layer_count(), shape.sharding.width);
    plan.checkpoint.assign(job_.graph.layer_count(), false);
    plan.sp_width = shape.sharding.sequence_parallel ? shape.sharding.width : std::uint16_t{1};
    const std::uint32_t total = job_.total_microbatches();
    for (std::uint32_t r = 0; r < shape.replicas; ++r) {
      plan.microbatches.push_back(total / shape.replicas + (r < total % shape.replicas ? 1 : 0));
    }
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      plan.pp_splits.push_back(s);
    }
    plan.placement = place(job_.cluster, pool_, shape, layout);
    return plan;
  }

  SplitProblem with_real_tail(const SplitProblem& problem, const Plan& plan) {
    SplitProblem real = problem;
    for (const Ring& ring : replica_rings(job_.cluster, plan)) {
      const StepTail tail = evaluator_.model().step_tail(ring, problem.table->sharding());
      real.tail.fixed_s = std::max(real.tail.fixed_s, tail.fixed_s);
      real.tail.per_param_s = std::max(real.tail.per_param_s, tail.per_param_s);
      real.tail.update_fixed_s = std::max(real.tail.update_fixed_s, tail.update_fixed_s);
      real.tail.update_per_param_s =
          std::max(real.tail.update_per_param_s, tail.update_per_param_s);
    }
    return real;
  }

  /// Per link the slowest over all replicas.
  std::vector<double> worst_delays(const Plan& plan) {
    std::vector<double> delays(plan.stages() - 1, 0);
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      for (std::uint32_t s = 0; s + 1 < plan.stages(); ++s) {
        const Link link =
            link_between(job_.cluster, plan.placement[r][s], plan.placement[r][s + 1]);
        const Sharding sharding = evaluator_.sharding_of(plan, r, s);
        const double bytes = evaluator_.table(sharding).cut_bytes(s + 1);
        delays[s] = std::max(delays[s],
                             evaluator_.model().hop(link, sharding, bytes, plan.stages()).delay_s);
      }
    }
    return delays;
  }

  void apply(const SplitProblem& problem, const Split& split, Plan& plan) {
    plan.pp_splits = split.cuts;
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const LayerRange range = stage_layers(plan, 0, s, problem.table->layers());
      if (const auto stage = fit(problem, s, range)) {
        mark_recomputed(*problem.table, range, *stage, plan.checkpoint);
      }
    }
  }

  void anneal_shapes() {
    std::vector<double> value(shapes_.size(), -1);
    anneal(shapes_, job_.search.seed, [&](std::size_t index) {
      if (value[index] < 0) {
        ++outcome_.shapes_tried;
        const SplitProblem problem = problem_of(shapes_[index]);
        const auto split = bottleneck_split(problem, kInfinity);
        value[index] = split ? realise(shapes_[index], problem, *split) : kInfinity;
      }
      return stopped() ? -1 : value[index];
    });
  }

  bool stopped() {
    if (options_.stop.stop_requested()) {
      outcome_.complete = false;
    }
    return !outcome_.complete;
  }

  void report(double done) const {
    if (options_.progress) {
      options_.progress(done, best_s_);
    }
  }

  Result<SolveOutcome> finish() {
    const double bound = std::min(best_s_, *std::min_element(bound_.begin(), bound_.end()));
    plan_.predicted = predict(job_, plan_);
    plan_.predicted.lower_bound_s = bound;
    plan_.predicted.gap_ratio = plan_.predicted.step_time_s / bound - 1;
    if (job_.limits.step_time_s > 0 && plan_.predicted.step_time_s > job_.limits.step_time_s) {
      return fail(ErrorCode::kInfeasible,
                  "job {}: the best plan takes {:.3f} s per step and no plan can take less than "
                  "{:.3f} s, but limits.step_time_s is {:.3f}",
                  job_.name, plan_.predicted.step_time_s, bound, job_.limits.step_time_s);
    }
    const Result<void> valid = check_plan(job_, plan_);
    TAPAS_CHECK(valid.has_value(), "the search made an invalid plan: {}", valid.error().message);
    outcome_.summary = fmt::format(
        "TP {} x PP {} x DP {}{}: {:.3f} s per step, {:.1f} % of peak; no plan is below {:.3f} s "
        "(gap {:.2f} %)",
        plan_.tp_width.front(), plan_.stages(), plan_.replicas(),
        plan_.sp_width > 1 ? " with sequence parallelism" : "", plan_.predicted.step_time_s,
        plan_.predicted.peak_fraction * 100, bound, plan_.predicted.gap_ratio * 100);
    if (job_.search.model == CostModelKind::kDocument) {
      outcome_.summary +=
          fmt::format("; the document's objective is {:.4g}", document_objective(job_, plan_));
    }
    outcome_.plan = std::move(plan_);
    return std::move(outcome_);
  }

  const Job& job_;
  const SolveOptions& options_;
  PlanEvaluator evaluator_;
  const Pool pool_;
  const std::vector<Shape> shapes_;
  std::vector<double> bound_;  ///< per shape; infinite once ruled out
  SolveOutcome outcome_;
  Plan plan_;
  double best_s_ = kInfinity;
};

}  // namespace

Result<SolveOutcome> solve(const Job& job, const SolveOptions& options) {
  if (auto ok = validate(job); !ok) {
    return tl::unexpected(ok.error());
  }
  return Search(job, options).run();
}

}  // namespace tapas::solver
