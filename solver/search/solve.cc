#include "solver/search/solve.h"

#include "base/check.h"
#include "solver/check/check_plan.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/cost/predict.h"
#include "solver/search/document_search.h"
#include "solver/search/explain.h"
#include "solver/search/step_search.h"

#include <algorithm>
#include <utility>

namespace tapas::solver {
namespace {

// Sums in another order differ by less.
constexpr double kRounding = 1e-9;

std::string widths_text(const Plan& plan) {
  const auto [least, most] = std::minmax_element(plan.tp_width.begin(), plan.tp_width.end());
  return *least == *most ? fmt::format("TP {}", *least) : fmt::format("TP {} to {}", *least, *most);
}

std::string summary_of(const Job& job, const Plan& plan, const Certificate& certificate) {
  const Prediction& p = plan.predicted;
  std::string text = fmt::format("{} x PP {}", widths_text(plan), plan.stages());
  if (plan.interleave > 1) {
    text += fmt::format(" x {} chunks", plan.interleave);
  }
  text += fmt::format(" x DP {}{}", plan.replicas(),
                      plan.sp_width > 1 ? " with sequence parallelism" : "");
  if (job.search.micro_batch_sizes.size() > 1) {
    text += fmt::format(", microbatches of {}", plan.micro_batch_size);
  }
  text +=
      fmt::format(": {:.3f} s per step, {:.1f} % of peak; ", p.step_time_s, p.peak_fraction * 100);
  const char* apart = certificate.bounds_all ? "" : ", apart from what was not looked at";
  if (job.search.model == CostModelKind::kDocument) {
    return text + fmt::format("the document's objective is {:.6g}, {}{}", certificate.objective,
                              certificate.optimal ? std::string("and no plan has less")
                                                  : fmt::format("no plan has less than {:.6g}",
                                                                certificate.objective_bound),
                              apart);
  }
  return text + fmt::format("{}no plan is below {:.3f} s (gap {:.2f} %){}",
                            certificate.optimal ? "proven the best; placed in any way " : "",
                            p.lower_bound_s, p.gap_ratio * 100, apart);
}

Error nothing_found(const Job& job, const Fleet& fleet, const SearchResult& result) {
  if (!result.complete) {
    return {ErrorCode::kTimeout,
            fmt::format("job {}: stopped before a first plan was found", job.name)};
  }
  // The smallest microbatches hold least.
  const auto smallest = std::min_element(
      fleet.sizes().begin(), fleet.sizes().end(), [](const auto& a, const auto& b) {
        return a->job.graph.micro_batch_size < b->job.graph.micro_batch_size;
      });
  const Job& least = (*smallest)->job;
  PlanEvaluator evaluator(least);
  const Pool pool = usable_nodes(job.cluster);
  std::string text = fmt::format("job {}: {}", job.name,
                                 explain_infeasible(evaluator, pool, list_shapes(least, pool)));
  if (!fleet.not_measured().empty()) {
    text += fmt::format("; not planned: {}", fleet.not_measured().front());
  }
  return {ErrorCode::kInfeasible, std::move(text)};
}

}  // namespace

Result<SolveOutcome> solve(const Job& job, const SolveOptions& options) {
  if (auto ok = validate(job); !ok) {
    return tl::unexpected(ok.error());
  }
  const Fleet fleet(job);
  const bool document = job.search.model == CostModelKind::kDocument;
  SearchResult result =
      document ? search_objective(job, fleet, options) : search_step_time(job, fleet, options);
  if (result.best.row.cuts.empty()) {
    return tl::unexpected(nothing_found(job, fleet, result));
  }

  SolveOutcome outcome;
  outcome.complete = result.complete;
  outcome.certificate = std::move(result.certificate);
  outcome.shapes_tried = outcome.certificate.shapes;
  for (const Certificate::Reason& reason : outcome.certificate.ruled_out) {
    outcome.shapes_pruned += reason.shapes;
  }
  for (const std::string& why : fleet.not_measured()) {
    outcome.certificate.ruled_out.push_back({why, 1});
  }
  outcome.plan = plan_of(job, fleet, result.best);
  const Job& sized = fleet.sizes()[result.best.spec.size]->job;
  Prediction& predicted = outcome.plan.predicted;
  predicted = predict(sized, outcome.plan);
  TAPAS_CHECK(
      std::abs(predicted.step_time_s - result.best.step_s) <= kRounding * predicted.step_time_s,
      "the search took the step for {} s, it is {} s", result.best.step_s, predicted.step_time_s);
  predicted.lower_bound_s = std::min(predicted.step_time_s, result.bound_s);
  predicted.gap_ratio = predicted.step_time_s / predicted.lower_bound_s - 1;
  if (document) {
    outcome.certificate.objective = result.best.value;
    outcome.certificate.optimal =
        outcome.certificate.bounds_all &&
        result.best.value <= outcome.certificate.objective_bound * (1 + kRounding);
  }
  if (job.limits.step_time_s > 0 && predicted.step_time_s > job.limits.step_time_s) {
    return fail(ErrorCode::kInfeasible,
                "job {}: the best plan takes {:.3f} s per step and no plan can take less than "
                "{:.3f} s, but limits.step_time_s is {:.3f}",
                job.name, predicted.step_time_s, predicted.lower_bound_s, job.limits.step_time_s);
  }
  const Result<void> valid = check_plan(sized, outcome.plan);
  TAPAS_CHECK(valid.has_value(), "the search made an invalid plan: {}", valid.error().message);
  outcome.summary = summary_of(job, outcome.plan, outcome.certificate);
  return outcome;
}

}  // namespace tapas::solver
