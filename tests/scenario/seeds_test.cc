#include "tests/scenario/sim.h"
#include "tests/unit/solver/jobs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace tapas::daemon::sim {
namespace {

std::shared_ptr<const solver::Job> job() {
  solver::Job job = solver::testing::small_job(10, 4, 1, 16);
  job.search.min_stages = 2;
  job.search.max_stages = 2;
  job.switch_pause_s = 0.2;
  return std::make_shared<const solver::Job>(std::move(job));
}

/// What happened over all seeds, so that a run in which nothing happens does not pass.
struct Tally {
  std::size_t done = 0;
  std::size_t aborted = 0;
  std::uint64_t starts = 0;
  std::size_t verdicts = 0;
};

/// A node gets slow and well again while connections break, agents and the core are restarted and
/// writes fail; then all that stops, and everything must be in order.
void run(std::uint64_t seed, Tally& tally) {
  Options options;
  options.seed = seed;
  options.config.auto_replan = true;
  options.config.prepare_deadline_s = 3;
  options.config.transfer_deadline_s = 5;
  options.config.arm_deadline_s = 15;
  options.config.commit_deadline_s = 2;
  options.config.agent_lost_s = 4;
  options.config.cooldown_s = 5;
  const double rough = static_cast<double>(seed % 4) / 3;
  options.faults.link_cuts_per_s = 0.02 * rough;
  options.faults.agent_restarts_per_s = 0.01 * rough;
  options.faults.core_crashes_per_s = 0.03 * rough;
  options.faults.store_failures = seed % 5 == 0 ? 0.05 : 0;
  options.faults.max_delay_s = seed % 3 == 0 ? 0.3 : 0.02;
  Sim sim(job(), options);
  const auto& nodes = sim.core().job("small")->cluster.nodes;
  for (std::uint32_t round = 0; round < 4; ++round) {
    const std::string node = nodes[(seed + round) % nodes.size()].name;
    sim.run_until(sim.now() + 30);
    sim.slow(node, 1.7);
    sim.run_until(sim.now() + 45);
    sim.send({round + 1, "uid 0 (root)", Replan{"small", false}});
    sim.run_until(sim.now() + 15);
    sim.slow(node, 1.0);
  }
  sim.stop_faults();
  ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 120)) << sim.view().phase;
  const std::uint64_t step = sim.last_step();
  sim.run_until(sim.now() + 30);
  EXPECT_GT(sim.last_step(), step + 5) << "training stands still: " << sim.view().phase;
  std::size_t active = 0;
  for (const auto& [epoch, row] : sim.disk().plans) {
    active += row.status == PlanStatus::kActive ? 1 : 0;
  }
  EXPECT_EQ(active, 1U);
  for (const auto& [epoch, row] : sim.disk().switches) {
    (row.state == SwitchState::kDone ? tally.done : tally.aborted) += 1;
  }
  tally.starts += sim.disk().term;
  tally.verdicts += sim.events("verdict").size();
}

TEST(Seeds, EverySwitchEndsInOneEpochWhateverBreaks) {
  const char* only = std::getenv("TAPAS_SEED");
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const char* more = std::getenv("TAPAS_SEEDS");
  const std::uint64_t last = only != nullptr   ? first
                             : more != nullptr ? std::strtoull(more, nullptr, 10)
                                               : 60;
  Tally tally;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}; alone: TAPAS_SEED={} core_scenario_test", seed, seed));
    try {
      run(seed, tally);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (HasFailure()) {
      return;
    }
  }
  std::printf("%zu switches done, %zu aborted, %zu verdicts, %llu starts of the core\n", tally.done,
              tally.aborted, tally.verdicts, static_cast<unsigned long long>(tally.starts));
  if (only == nullptr) {
    EXPECT_GT(tally.done, 2 * last);
    EXPECT_GT(tally.aborted, last / 2);
    EXPECT_GT(tally.verdicts, 2 * last);
    EXPECT_GT(tally.starts, 3 * last);
  }
}

}  // namespace
}  // namespace tapas::daemon::sim
