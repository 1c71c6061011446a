#include "tests/scenario/sim_parts.h"

#include <fmt/format.h>

#include <utility>

namespace tapas::daemon::sim {
namespace {

constexpr double kTickS = 0.25;

}  // namespace

Sim::Agent& Sim::any_agent() { return *agents_[random_() % agents_.size()]; }

void Sim::stop_faults() {
  options_.faults = {.max_delay_s = options_.faults.max_delay_s};
  disk_full_until_s_ = 0;
}

/// The agents' clocks, and what goes wrong in the next quarter of a second.
void Sim::fault_tick() {
  at(kTickS, [this] { fault_tick(); });
  tell_core(Tick{});
  keep_no_longer();
  tick_agents();
  const Faults& faults = options_.faults;
  const auto now = [&](double per_s) { return per_s > 0 && chance(per_s * kTickS); };
  for (const auto& agent : agents_) {
    if (now(faults.link_cuts_per_s)) {
      cut(agent->node);
    } else if (now(faults.agent_restarts_per_s)) {
      restart_agent(agent->node);
    }
  }
  if (now(faults.partitions_per_s)) {
    const double for_s = draw(0.5, 15);
    for (const auto& agent : agents_) {
      if (chance(0.5)) {
        mute(agent->node, for_s);
        deafen(agent->node, for_s);
      }
    }
  }
  if (now(faults.one_way_per_s)) {
    const std::string& node = any_agent().node;
    chance(0.5) ? mute(node, draw(0.5, 15)) : deafen(node, draw(0.5, 15));
  }
  if (now(faults.full_disks_per_s)) {
    fill_disk(draw(1, 20));
  }
  if (now(faults.clock_jumps_per_s)) {
    if (chance(0.3)) {
      wall_off_s_ += draw(-3600, 3600);
    } else {
      set_clock(any_agent().node, draw(-300, 300));
    }
  }
  if (now(faults.clashes_per_s)) {
    clash(any_agent().node, draw(2, 12));
  }
  if (now(faults.rank_deaths_per_s)) {
    Agent& agent = any_agent();
    if (agent.ranks.size() > 1) {
      std::swap(seats_[agent.ranks[0].id], seats_[agent.ranks[1].id]);
    }
    kill_ranks(agent.node, draw(0.5, 6));
  }
  if (now(faults.commands_per_s)) {
    command_something();
  }
  if (now(faults.core_crashes_per_s)) {
    crash_core(chance(0.5) ? 0 : draw(0.1, 8));
  }
}

void Sim::command_something() {
  const std::string& node = any_agent().node;
  const std::uint64_t request = ++last_command_;
  OperatorCommand command{request, fmt::format("uid {}", request), Replan{job_->name, false}};
  switch (random_() % 9) {
    case 0:
      command.verb = Drain{node, "fan"};
      break;
    case 1:
      command.verb = Undrain{node};
      break;
    case 2:
      command.verb = Pin{node, "debugged"};
      break;
    case 3:
      command.verb = Unpin{node};
      break;
    case 4:
      command.verb = SetAuto{false, "wait"};
      break;
    case 5:
    case 6:
      command.verb = SetAuto{true, ""};
      break;
    case 7:
      command.verb = Replan{job_->name, true};
      break;
    default:
      break;
  }
  send(std::move(command));
}

}  // namespace tapas::daemon::sim
