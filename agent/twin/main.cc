// tapas-twin: an emulated cluster on the real wire.
#include "agent/twin/fault.h"
#include "agent/twin/fleet.h"
#include "agent/twin/report.h"
#include "agent/twin/session.h"
#include "agent/twin/truth.h"
#include "agent/twin/virtual_job.h"
#include "base/log/log.h"
#include "config/key_file.h"
#include "config/open_files.h"
#include "solver/model/io/load.h"

#include <CLI/CLI.hpp>
#include <sys/signalfd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace tapas;

struct Arguments {
  std::string job;
  std::string daemon = "tcp://127.0.0.1:5570";
  std::string server_key;
  std::string keys;
  double speed = 1.0;
  double rate = 0;
  std::uint64_t steps = 0;
  std::vector<std::string> faults;
  std::uint64_t seed = 1;
  std::string report;
  bool quiet = false;
  bool dry_run = false;
  std::string plan;
};

constexpr const char* kExamples = R"(
Examples:
  tapas-twin --job job.json --server-key server.pub --keys keys/ --speed 20
  tapas-twin --job job.json --server-key server.pub --keys keys/ \
             --fault "step=30 node=node-037 slowdown=1.6" --steps 100 --report truth.jsonl
  tapas-twin --dry-run --job job.json --plan plan.json --steps 5

Commands on standard input while it runs:
  slow NODE FACTOR [device K], input NODE SECONDS [device K],
  link NODE send|receive|inside FACTOR, path FROM TO FACTOR,
  heal NODE, kill-agent NODE, start-agent NODE, kill-rank RANK, status, quit)";

int fail_with(const Error& error) {
  fmt::print(stderr, "tapas-twin: {}\n", error.message);
  return 1;
}

// SIGINT and SIGTERM become readable instead of killing; threads made later inherit the mask.
int signals_as_file() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

// An agent has a connection, and sockets of libzmq with a descriptor each.
constexpr std::size_t kFilesPerAgent = 4;
constexpr std::size_t kOtherFiles = 64;

Result<std::vector<twin::Fault>> read_faults(const Arguments& arguments, const solver::Job& job) {
  std::vector<twin::Fault> faults;
  for (const std::string& text : arguments.faults) {
    const auto fault = twin::parse_fault(text, job.cluster);
    if (!fault) {
      return tl::unexpected<Error>(fault.error());
    }
    faults.push_back(*fault);
  }
  return faults;
}

int dry_run(const Arguments& arguments, const solver::Job& job) {
  const auto plan = solver::load_plan(arguments.plan, job);
  if (!plan) {
    return fail_with(plan.error());
  }
  const auto faults = read_faults(arguments, job);
  if (!faults) {
    return fail_with(faults.error());
  }
  const twin::Truth truth(job, arguments.seed);
  const auto layout = truth.lay_out(*plan);
  if (!layout) {
    return fail_with(layout.error());
  }
  twin::Faults schedule(job.cluster);
  for (const twin::Fault& fault : *faults) {
    schedule.add(fault);
  }
  const twin::Report report(job.cluster);
  double flops = 0;
  for (const solver::OpNode& op : job.graph.nodes) {
    flops += (op.fwd_flops + op.bwd_flops) * job.total_microbatches();
  }
  double time_s = 0;
  for (std::uint64_t step = 1; step <= (arguments.steps > 0 ? arguments.steps : 3); ++step) {
    const auto acting = schedule.acting(step, time_s);
    const twin::StepTruth result =
        truth.step(*layout, step, schedule.state(acting), 1.0, schedule.input_s(acting));
    time_s += result.wall_s;
    double peak = 0;
    for (const twin::RankStep& rank : result.ranks) {
      peak += job.cluster.device_type_of(rank.node).peak_flops;
    }
    const std::string slowed = report.describe(acting);
    fmt::print("step {}  {:.3f} s  {:.1f} % of peak{}{}\n", step, result.wall_s,
               100 * flops / (result.wall_s * peak), slowed.empty() ? "" : "  slowed: ", slowed);
  }
  fmt::print(
      "stage of replica 0, healthy: forward s, backward s, TP s per microbatch; gradients s, "
      "optimizer s per step\n");
  const auto links = truth.links(*layout, {});
  for (std::size_t s = 0; s < layout->replicas[0].size(); ++s) {
    const twin::Layout::Stage& stage = layout->replicas[0][s];
    const twin::StageLinks& link = links[0][s];
    fmt::print("{:<12} layers {:>3}-{:<3} {:.4f} {:.4f} {:.4f}  {:.3f} {:.3f}\n",
               job.cluster.nodes[stage.position.node.value()].name, stage.layers.first,
               stage.layers.last - 1, stage.forward_s, stage.backward_s,
               link.tp_forward_s + link.tp_backward_s, link.dp_s, stage.optimizer_s);
  }
  return 0;
}

Result<twin::Fleet::Options> fleet_options(const Arguments& arguments, const solver::Job& job) {
  twin::Fleet::Options options;
  options.endpoint = arguments.daemon;
  options.seed = arguments.seed;
  options.start_ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  const auto server_key = read_public_key(arguments.server_key);
  if (!server_key) {
    return tl::unexpected<Error>(server_key.error());
  }
  options.server_key = *server_key;
  for (const solver::Node& node : job.cluster.nodes) {
    const auto key = read_secret_key(arguments.keys + "/" + node.name + ".key");
    if (!key) {
      return tl::unexpected<Error>(key.error());
    }
    options.node_keys.push_back(*key);
  }
  return options;
}

int emulate(const Arguments& arguments, const solver::Job& model) {
  const std::size_t files = model.cluster.nodes.size() * kFilesPerAgent + kOtherFiles;
  if (const std::size_t limit = raise_open_files(); limit < files) {
    return fail_with(Error{ErrorCode::kUnavailable,
                           fmt::format("{} agents need {} open files, but {} are allowed (ulimit "
                                       "-Hn); raise the limit, or emulate a smaller cluster",
                                       model.cluster.nodes.size(), files, limit)});
  }
  const int signal_fd = signals_as_file();
  log::set_up("tapas-twin", arguments.quiet ? log::Level::kError : log::Level::kWarning);

  twin::VirtualJob job(model, {arguments.speed, arguments.seed, arguments.steps, arguments.rate});
  const auto faults = read_faults(arguments, model);
  if (!faults) {
    return fail_with(faults.error());
  }
  for (const twin::Fault& fault : *faults) {
    job.faults().add(fault);
  }
  twin::Report report(model.cluster);
  if (!arguments.report.empty()) {
    if (auto ok = report.open(arguments.report); !ok) {
      return fail_with(ok.error());
    }
  }
  const auto options = fleet_options(arguments, model);
  if (!options) {
    return fail_with(options.error());
  }
  twin::Fleet fleet(model, job, *options);
  for (std::uint32_t node = 0; node < model.cluster.nodes.size(); ++node) {
    if (auto ok = fleet.start(NodeId{node}, std::chrono::steady_clock::now()); !ok) {
      return fail_with(ok.error());
    }
  }
  twin::Session session(model, job, fleet, report, signal_fd, arguments.quiet);
  const auto ended = session.run();
  fmt::print("{}{} steps, epoch {}, {:.1f} s of job time, {} records sent, {} dropped\n",
             report.summary(), job.last_step(), job.epoch(), job.time_s(), fleet.records_sent(),
             fleet.records_dropped());
  return ended ? 0 : fail_with(ended.error());
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{
      "Emulates a cluster: one agent per node, connected to tapasd over the real protocol, "
      "and the ranks of a training job with a step simulation of their own.",
      "tapas-twin"};
  app.footer(kExamples);
  app.set_version_flag("--version", std::string("tapas-twin ") + TAPAS_VERSION);
  app.add_option("--job", arguments.job, "Job file (tapas.job/1)")->required();
  auto* dry = app.add_flag("--dry-run", arguments.dry_run,
                           "Only print what steps of --plan would take; needs no daemon");
  app.add_option("--plan", arguments.plan, "Plan for --dry-run")->needs(dry);
  app.add_option("--daemon", arguments.daemon, "Where tapasd listens")->capture_default_str();
  app.add_option("--server-key", arguments.server_key, "Public key of tapasd");
  app.add_option("--keys", arguments.keys, "Folder with <node>.key for every node");
  app.add_option("--speed", arguments.speed, "Job seconds per second")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--rate", arguments.rate,
                 "Step records of all ranks a second: steps end that fast, whatever they would "
                 "take; for load tests")
      ->check(CLI::Range(1.0, 1e8));
  app.add_option("--steps", arguments.steps, "Stop after this many steps; 0 = go on")
      ->capture_default_str();
  app.add_option(
      "--fault", arguments.faults,
      "\"node=NAME slowdown=F [device=K]\", \"node=NAME input_s=S [device=K]\" (its data loader is "
      "late), \"node=NAME send=F\" (or receive, inside), "
      "\"from=NAME to=NAME path=F\", each with [step=N] [at_s=S] [until_step=N]; repeatable");
  app.add_option("--seed", arguments.seed, "Of the hardware's spread and jitter")
      ->capture_default_str();
  app.add_option("--report", arguments.report, "Write the truth as JSON lines");
  app.add_flag("--quiet", arguments.quiet, "No progress");
  try {
    app.parse(argc, argv);
    if (arguments.dry_run && arguments.plan.empty()) {
      throw CLI::RequiredError("--plan");
    }
    if (!arguments.dry_run && arguments.server_key.empty()) {
      throw CLI::RequiredError("--server-key");
    }
    if (!arguments.dry_run && arguments.keys.empty()) {
      throw CLI::RequiredError("--keys");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto job = solver::load_job(arguments.job);
  if (!job) {
    return fail_with(job.error());
  }
  return arguments.dry_run ? dry_run(arguments, *job) : emulate(arguments, *job);
}
