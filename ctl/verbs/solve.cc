#include "solver/search/solve.h"

#include "base/parallel.h"
#include "ctl/plan_text.h"
#include "ctl/progress.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write_file.h"
#include "solver/model/io/load.h"
#include "solver/search/remedies.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <memory>

namespace tapas::ctl {

namespace {

struct SolveVerbOptions {
  std::string job_file;
  std::string out_file;
};

/// What a device of each group offers to the plan.
std::vector<double> memory_caps_bytes(const solver::Job& job, const solver::Plan& plan) {
  std::vector<double> caps;
  for (const solver::Position& position : plan.placement.front()) {
    const double own = job.limits.device_memory_bytes;
    caps.push_back((own > 0 ? own : job.cluster.device_type_of(position.node).memory_bytes) *
                   (1 - job.limits.memory_reserve_ratio));
  }
  return caps;
}

/// What the search looked at, what it ruled out and why, what it left.
std::string certificate_text(const solver::Certificate& certificate, double elapsed_s) {
  std::string text =
      fmt::format("{} in {}: {} timed, {} branched\n", format_count(certificate.shapes, "shape"),
                  format_seconds(elapsed_s), format_count(certificate.rows_timed, "cut"),
                  certificate.rows_branched);
  for (const solver::Certificate::Reason& reason : certificate.ruled_out) {
    text += fmt::format("  {} ruled out: {}\n", reason.shapes, printable(reason.why));
  }
  for (const std::string& undone : certificate.undone) {
    text += fmt::format("  not done: {}\n", printable(undone));
  }
  return text;
}

/// What would make an infeasible job fit, each change solved; on stderr, as the error follows
/// there.
void suggest_remedies(const solver::Job& job) {
  say("no plan fits; looking for the smallest changes after which one does ...");
  const std::vector<solver::Remedy> remedies = solver::find_remedies(job);
  for (const solver::Remedy& remedy : remedies) {
    say(fmt::format("would fit with {}: {} per step", printable(remedy.change),
                    format_seconds(remedy.outcome.plan.predicted.step_time_s)));
  }
  if (remedies.empty()) {
    say("no single change within reach was found");
  }
}

Result<Exit> solve_job(const Context& context, const SolveVerbOptions& options) {
  const auto job = solver::load_job(options.job_file);
  if (!job) {
    return tl::unexpected(job.error());
  }
  Progress progress;
  solver::SolveOptions solve_options;
  solve_options.progress = [&](double done, double best) {
    progress.report(fmt::format("solving: {:.0f} % of the shapes, best step {}", done * 100,
                                format_seconds(best)));
  };
  solve_options.parallel_for = parallel_for;
  const auto outcome = solver::solve(*job, solve_options);
  const double elapsed_s = progress.elapsed_s();
  progress.clear();
  if (!outcome) {
    if (outcome.error().code == ErrorCode::kInfeasible) {
      suggest_remedies(*job);
    }
    return tl::unexpected(outcome.error());
  }

  const json::Value plan = solver::plan_to_json(outcome->plan, *job);
  if (!options.out_file.empty()) {
    if (auto done = write_file(options.out_file, json::dump(plan, 2) + "\n"); !done) {
      return tl::unexpected(done.error());
    }
    say(fmt::format("plan written to {}", options.out_file));
  }
  if (context.json()) {
    print_json(plan);
    return Exit::kOk;
  }
  const auto view = plan_view(plan);
  if (!view) {
    return tl::unexpected(view.error());
  }
  print(plan_text(*view, memory_caps_bytes(*job, outcome->plan)));
  print(
      fmt::format("\n{}\n{}", outcome->summary, certificate_text(outcome->certificate, elapsed_s)));
  return Exit::kOk;
}

}  // namespace

void add_solve(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("solve", "Find the plan of a job; needs no daemon");
  verb->footer(
      "Examples:\n  tapasctl solve gpt3-175b-a800-1024.json\n"
      "  tapasctl solve job.json -o json > plan.json\n"
      "  tapasctl solve job.json --out plan.json && tapasctl plan check plan.json --job job.json\n"
      "Exit 1 with an explanation when no plan fits.");
  auto options = std::make_shared<SolveVerbOptions>();
  verb->add_option("JOB", options->job_file, "Job file (tapas.job/1)")->required();
  verb->add_option("--out", options->out_file, "Also write the plan (tapas.plan/1) to this file");
  add_format_option(*verb, context);
  verb->callback([&context, options] {
    context.run = [&context, options] { return solve_job(context, *options); };
  });
}

}  // namespace tapas::ctl
