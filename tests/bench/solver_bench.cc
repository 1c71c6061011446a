#include "solver/model/io/load.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"
#include "tests/bench/bench.h"

#include <algorithm>
#include <stdexcept>

namespace tapas::bench {
namespace {

solver::Job large_job() {
  auto job = solver::load_job(TAPAS_SOURCE_DIR "/config/examples/gpt3-175b-a800-1024.json");
  if (!job) {
    throw std::runtime_error(job.error().message);
  }
  return *std::move(job);
}

solver::SolveOutcome solved(const solver::Job& job) {
  auto outcome = solver::solve(job);
  if (!outcome) {
    throw std::runtime_error(outcome.error().message);
  }
  return *std::move(outcome);
}

std::vector<Measurement> offline() {
  constexpr int kRuns = 5;
  solver::Job job = large_job();
  solver::SolveOutcome outcome;
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const double before = thread_cpu_s();
    outcome = solved(job);
    least = std::min(least, thread_cpu_s() - before);
  }
  const solver::Prediction& physical = outcome.plan.predicted;
  job.search.model = solver::CostModelKind::kDocument;
  const solver::Prediction document = solved(job).plan.predicted;
  return {
      {"offline.gpt3_175b_1024.cpu", least, "s", 0.3, true},
      {"offline.gpt3_175b_1024.gap", physical.gap_ratio * 100, "%", 1, true},
      {"offline.gpt3_175b_1024.step", physical.step_time_s, "s"},
      {"offline.gpt3_175b_1024.bound", physical.lower_bound_s, "s"},
      {"offline.gpt3_175b_1024.peak_share", physical.peak_fraction * 100, "%"},
      {"offline.gpt3_175b_1024.document_peak_share", document.peak_fraction * 100, "%", 76, false}};
}

/// One node after the other slowed by 1.6, all devices off by up to 1 % as measurements are.
std::vector<Measurement> replan() {
  const solver::Job job = large_job();
  solver::ReplanRequest request;
  request.current = solved(job).plan;
  request.expected_episode_s = 1800;
  std::vector<double> cpu;
  double worst = 0;
  for (std::uint32_t node = 0; node < job.cluster.nodes.size(); ++node) {
    request.state.device_slowdown.clear();
    for (std::uint32_t rank = 0; rank < job.cluster.device_count(); ++rank) {
      request.state.device_slowdown.push_back(0.99 +
                                              0.02 * static_cast<double>(rank * 37 % 101) / 100);
    }
    for (std::uint32_t d = 0; d < job.cluster.type_of(NodeId(node)).devices; ++d) {
      request.state.device_slowdown[job.cluster.rank_of(NodeId(node), d).value()] = 1.6;
    }
    const double before = thread_cpu_s();
    const auto proposal = solver::micro_replan(job, request);
    cpu.push_back(thread_cpu_s() - before);
    if (!proposal) {
      throw std::runtime_error(proposal.error().message);
    }
    worst = std::max(worst, proposal->step_after_s / proposal->lower_bound_s);
  }
  std::sort(cpu.begin(), cpu.end());
  return {{"replan.gpt3_175b_1024.cpu_median", cpu[cpu.size() / 2] * 1e3, "ms"},
          {"replan.gpt3_175b_1024.cpu_p99", cpu[cpu.size() * 99 / 100] * 1e3, "ms", 10, true},
          {"replan.gpt3_175b_1024.over_bound", (worst - 1) * 100, "%", 10, true}};
}

const Registration kOffline("offline.", offline);
const Registration kReplan("replan.", replan);

}  // namespace
}  // namespace tapas::bench
