#include "base/parallel.h"
#include "ctl/breakdown_text.h"
#include "ctl/conditions.h"
#include "ctl/proposal_text.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write_file.h"
#include "solver/cost/transfer_order.h"
#include "solver/model/io/load.h"
#include "solver/model/io/proposal_json.h"
#include "solver/replan/full_replan.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tapas::ctl {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct WhatifOptions {
  std::string job_file;
  std::string plan_file;
  Conditions conditions;
  double episode_s = 1800;
  double limit_ms = 0;  ///< 0 = by evaluations
  solver::ReplanLimits limits;
  bool full = false;
  std::string out_file;
};

Result<solver::Plan> start_plan(const solver::Job& job, const WhatifOptions& options) {
  if (!options.plan_file.empty()) {
    return solver::load_plan(options.plan_file, job);
  }
  say("no --plan: solving the healthy job first");
  solver::SolveOptions solve_options;
  solve_options.parallel_for = parallel_for;
  auto outcome = solver::solve(job, solve_options);
  if (!outcome) {
    return tl::unexpected(outcome.error());
  }
  return std::move(outcome->plan);
}

/// The search with its clock.
Result<json::Value> search(const solver::Job& job, const solver::ReplanRequest& request,
                           const WhatifOptions& options) {
  constexpr double kNoLimitS = 86400;
  const auto start = Clock::now();
  solver::ReplanLimits limits = options.limits;
  double limit_s = kNoLimitS;
  if (options.limit_ms > 0) {
    limits.evaluations = std::numeric_limits<std::uint64_t>::max();
    limit_s = options.limit_ms / 1e3;
  }
  limits.time_left_s = [&] { return limit_s - seconds_since(start); };
  auto proposal = solver::micro_replan(job, request, limits);
  const double solve_s = seconds_since(start);
  if (!proposal) {
    return tl::unexpected(proposal.error());
  }
  proposal->transfers = solver::transfer_times(job, proposal->moves, request.state);
  json::Value out = solver::proposal_to_json(*proposal, job);
  out["solve_s"] = solve_s;
  for (std::size_t k = 0; k < proposal->tried.size(); ++k) {
    out["tried"][k]["elapsed_s"] = proposal->tried[k].elapsed_s;
  }
  return out;
}

json::Value full_replan_json(const solver::Job& job, const solver::ReplanRequest& request) {
  solver::SolveOptions solve_options;
  solve_options.parallel_for = parallel_for;
  const auto start = Clock::now();
  const auto full = solver::full_replan(job, request, solve_options);
  const double solve_s = seconds_since(start);
  if (!full) {
    return {{"error", full.error().message}};
  }
  const double bytes =
      std::accumulate(full->moves.begin(), full->moves.end(), 0.0,
                      [](double sum, const solver::LayerMove& move) { return sum + move.bytes; });
  return {{"without", full->without},
          {"shape", shape_of(full->plan)},
          {"step_after_s", full->step_after_s},
          {"switch_s", full->switch_s},
          {"solve_s", solve_s},
          {"net_gain_s", full->net_gain_s(solve_s)},
          {"layers_moved", full->moves.size()},
          {"bytes", bytes},
          {"obstacles", full->obstacles},
          {"plan", solver::plan_to_json(full->plan, job)}};
}

Result<Exit> what_if(const Context& context, const WhatifOptions& options) {
  const auto job = solver::load_job(options.job_file);
  if (!job) {
    return tl::unexpected(job.error());
  }
  solver::ReplanRequest request;
  auto state = cluster_state(options.conditions, job->cluster);
  auto pinned = pinned_nodes(options.conditions, job->cluster);
  if (!state || !pinned) {
    return tl::unexpected(state ? pinned.error() : state.error());
  }
  auto plan = start_plan(*job, options);
  if (!plan) {
    return tl::unexpected(plan.error());
  }
  request.current = *std::move(plan);
  request.state = *std::move(state);
  request.pinned = *std::move(pinned);
  request.expected_episode_s = options.episode_s;
  auto answer = search(*job, request, options);
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  if (options.full) {
    (*answer)["full"] = full_replan_json(*job, request);
  }
  if (!options.out_file.empty()) {
    const std::string text = json::dump((*answer)["plan"], 2) + "\n";
    if (auto done = write_file(options.out_file, text); !done) {
      return tl::unexpected(done.error());
    }
    say(fmt::format("plan written to {}", options.out_file));
  }
  if (context.json()) {
    print_json(*answer);
  } else {
    print(proposal_text(*answer));
  }
  return Exit::kOk;
}

}  // namespace

void add_whatif(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand(
      "whatif", "What a replan would do if nodes or links were slow; needs no daemon");
  verb->footer(
      "Examples:\n"
      "  tapasctl whatif job.json --plan plan.json --slow a800-037=1.6\n"
      "  tapasctl whatif job.json --slow a800-037=1.6 --slow a800-040:3=2 --episode 600 --ms 10\n"
      "  tapasctl whatif job.json --send a800-012=4 --path a800-003,a800-010=8 --full\n"
      "  tapasctl whatif job.json --drain a800-005 --pin a800-006 --out new-plan.json\n"
      "FACTOR: takes so many times as long. Exit 0 also when the plan had better stay.");
  auto options = std::make_shared<WhatifOptions>();
  Conditions& given = options->conditions;
  verb->add_option("JOB", options->job_file, "Job file (tapas.job/1)")->required();
  verb->add_option("--plan", options->plan_file,
                   "The plan that runs (tapas.plan/1); default: solve the job first");
  // Each takes one value; the flag is given again for the next.
  const auto several = [&](const char* name, std::vector<std::string>& into, const char* help) {
    verb->add_option(name, into, help)->allow_extra_args(false);
  };
  several("--slow", given.slow, "NODE=FACTOR or NODE:DEVICE=FACTOR: compute; all may be repeated");
  several("--send", given.send, "NODE=FACTOR: out of its NICs");
  several("--receive", given.receive, "NODE=FACTOR: into its NICs");
  several("--inside", given.inside, "NODE=FACTOR: between its devices");
  several("--path", given.path, "FROM,TO=FACTOR: between two nodes, one way");
  several("--drain", given.drain, "NODE to be moved off");
  several("--pin", given.pin, "NODE that keeps its stages and layers");
  verb->add_option("--episode", options->episode_s,
                   "Seconds for which it should stay so; default 1800")
      ->check(CLI::Range(0.0, 1e9));
  auto* by_time =
      verb->add_option("--ms", options->limit_ms, "Search for so long, instead of --evaluations")
          ->check(CLI::Range(0.001, 1e6));
  verb->add_option("--evaluations", options->limits.evaluations,
                   "Replicas to time; the answer then is the same every time")
      ->capture_default_str()
      ->excludes(by_time);
  verb->add_option("--seed", options->limits.seed, "Of the search")->capture_default_str();
  verb->add_flag("--full", options->full, "Also what solving the whole job anew would cost");
  verb->add_option("--out", options->out_file, "Write the new plan (tapas.plan/1) to this file");
  add_format_option(*verb, context);
  verb->callback([&context, options] {
    context.run = [&context, options] { return what_if(context, *options); };
  });
}

}  // namespace tapas::ctl
