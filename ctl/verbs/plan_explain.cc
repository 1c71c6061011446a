#include "ctl/breakdown_text.h"
#include "ctl/pipeline_svg.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "solver/check/check_plan.h"
#include "solver/cost/breakdown.h"
#include "solver/model/io/load.h"

#include <CLI/App.hpp>

#include <memory>

namespace tapas::ctl {

namespace {

struct ExplainOptions {
  std::string plan_file;
  std::string job_file;
  std::string format = "table";
  std::uint32_t replica = 0;
};

Result<Exit> explain_plan(const ExplainOptions& options) {
  auto loaded = solver::load_job(options.job_file);
  if (!loaded) {
    return tl::unexpected(loaded.error());
  }
  const auto plan = solver::load_plan(options.plan_file, *loaded);
  if (!plan) {
    return tl::unexpected(plan.error());
  }
  if (auto valid = solver::check_plan(*loaded, *plan); !valid) {
    return fail_in(options.plan_file, valid.error());
  }
  if (options.replica >= plan->replicas()) {
    return fail(ErrorCode::kNotFound, "{} has replicas 0 to {}", options.plan_file,
                plan->replicas() - 1);
  }
  const solver::Job job = solver::with_micro_batch_size(std::move(*loaded), plan->micro_batch_size);
  if (options.format == "svg") {
    const solver::ReplicaTimeline timeline = solver::replica_timeline(job, *plan, options.replica);
    print(pipeline_svg(timeline,
                       fmt::format("{}: {}, {} per step, replica {}", plan->job, shape_of(*plan),
                                   format_seconds(timeline.step_time_s), options.replica)));
    return Exit::kOk;
  }
  const solver::Breakdown breakdown = solver::break_down(job, *plan);
  const PlacementReport placement = placement_report(job, *plan);
  if (options.format == "json") {
    print_json(breakdown_to_json(job, *plan, breakdown, placement));
  } else {
    print(breakdown_text(job, *plan, breakdown, placement, options.replica));
  }
  return Exit::kOk;
}

}  // namespace

void add_plan_explain(CLI::App& plan, Context& context) {
  CLI::App* verb = plan.add_subcommand(
      "explain", "Where each second and each byte of a plan goes; needs no daemon");
  verb->footer(
      "Examples:\n"
      "  tapasctl plan explain plan.json --job job.json\n"
      "  tapasctl plan explain plan.json --job job.json -o svg > pipeline.svg");
  auto options = std::make_shared<ExplainOptions>();
  verb->add_option("FILE", options->plan_file, "Plan file (tapas.plan/1)")->required();
  verb->add_option("--job", options->job_file, "Job file (tapas.job/1)")->required();
  verb->add_option("--replica", options->replica, "Replica to show; default 0");
  verb->add_option("-o,--output", options->format, "table, json (all replicas) or svg")
      ->check(CLI::IsMember({"table", "json", "svg"}));
  verb->callback(
      [&context, options] { context.run = [options] { return explain_plan(*options); }; });
}

}  // namespace tapas::ctl
