#pragma once

#include "tests/scenario/story.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

/// Short stories in which anything may go wrong at any moment, each drawn from one number.
namespace tapas::daemon::sim {

/// Which job, and what goes wrong, in the schedule of a seed.
struct Schedule {
  std::shared_ptr<const solver::Job> job;
  Options options;
};

inline Schedule schedule(std::uint64_t seed) {
  solver::testing::Draw draw(seed);
  struct Shape {
    std::uint32_t nodes;
    std::uint32_t stages;
    std::uint32_t spares;
  };
  constexpr Shape kShapes[] = {{4, 2, 0}, {4, 2, 0}, {4, 4, 1}, {6, 3, 0}, {2, 2, 2}};
  const Shape shape = kShapes[draw.between(0U, 4U)];
  Schedule out;
  out.job = job_on(shape.nodes, shape.stages, 10, shape.spares);
  Options& options = out.options;
  options.seed = seed;
  options.second_core = seed % 8 == 0;
  options.config.auto_replan = true;
  options.config.prepare_deadline_s = 3;
  options.config.transfer_deadline_s = 5;
  options.config.arm_deadline_s = 15;
  options.config.commit_deadline_s = 2;
  options.config.agent_lost_s = 4;
  options.config.cooldown_s = draw.between(0U, 1U) == 0 ? 5 : 20;
  options.config.replans_per_hour = draw.between(2U, 12U);
  // One in eight is quiet; in the others each fault is there or not, more of it or less.
  const bool quiet = draw.between(0U, 7U) == 0;
  const auto some = [&](double most) {
    const bool there = draw.between(0U, 2U) == 0;
    const double much = draw.between(0.2, 1.0) * most;
    return there && !quiet ? much : 0;
  };
  Faults& faults = options.faults;
  faults.link_cuts_per_s = some(0.03);
  faults.agent_restarts_per_s = some(0.02);
  faults.core_crashes_per_s = some(0.05);
  faults.store_failures = some(0.1);
  faults.max_delay_s = 0.02 + some(0.6);
  faults.lost = some(0.1);
  faults.repeated = some(0.2);
  faults.overtaken = some(0.3);
  faults.partitions_per_s = some(0.03);
  faults.one_way_per_s = some(0.05);
  faults.core_dies_between = some(0.003);
  faults.slow_writes = some(0.2);
  faults.full_disks_per_s = some(0.02);
  faults.clock_jumps_per_s = some(0.1);
  faults.clashes_per_s = some(0.03);
  faults.rank_deaths_per_s = some(0.03);
  faults.commands_per_s = some(0.2);
  return out;
}

/// Plays it to the end: a node gets slow and well again while all that goes wrong; then it stops,
/// and everything must come in order. Throws std::logic_error when an invariant breaks.
inline std::unique_ptr<Sim> play(std::uint64_t seed, Mutation mutation = Mutation::kNone,
                                 bool record = false) {
  const auto require = [](bool ok, const std::string& what) {
    if (!ok) {
      throw std::logic_error("invariant broken: " + what);
    }
  };
  Schedule plan = schedule(seed);
  plan.options.mutation = mutation;
  plan.options.record = record;
  auto sim = std::make_unique<Sim>(plan.job, plan.options);
  const auto& nodes = plan.job->cluster.nodes;
  for (std::uint32_t round = 0; round < 2; ++round) {
    const std::string node = nodes[(seed + round) % nodes.size()].name;
    sim->run_until(sim->now() + 25);
    sim->slow(node, 1.7);
    sim->run_until(sim->now() + 30);
    sim->send({round + 1, "uid 0 (root)", Replan{"small", false}});
    sim->run_until(sim->now() + 10);
    sim->slow(node, 1.0);
  }
  sim->stop_faults();
  const bool settles = sim->run_till([&] { return sim->settled(); }, 150);
  require(settles, "it does not settle: " + sim->why());
  const std::uint64_t step = sim->last_step();
  sim->run_until(sim->now() + 15);
  require(sim->last_step() > step + 3, "training stands still: " + sim->why());
  require(sim->unanswered().empty(), "an operator never got an answer");
  std::size_t active = 0;
  for (const auto& [epoch, row] : sim->disk().plans) {
    active += row.status == PlanStatus::kActive ? 1 : 0;
  }
  require(active == 1, fmt::format("{} plans are active", active));
  for (const AgentView& agent : sim->core().status({}).agents) {
    const auto stored = sim->disk().nodes.find(agent.node);
    const NodeStateRow state = stored == sim->disk().nodes.end() ? NodeStateRow{} : stored->second;
    require(agent.drained == state.drained && agent.pinned == state.pinned,
            agent.node + " is not what the store says");
  }
  return sim;
}

/// The number in an environment variable, or another one.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace tapas::daemon::sim
