#include "tests/scenario/sim.h"

#include "daemon/core/answers.h"
#include "daemon/recording/format.h"
#include "solver/cost/predict.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"
#include "tests/scenario/sim_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tapas::daemon::sim {
namespace {

constexpr double kTickS = 0.25;

}  // namespace

Sim::Sim(std::shared_ptr<const solver::Job> job, Options options)
    : job_(std::move(job)), options_(options), random_(options.seed), jobs_{{job_->name, job_}} {
  truth_.device_slowdown.assign(job_->cluster.device_count(), 1.0);
  for (std::uint32_t n = 0; n < job_->cluster.nodes.size(); ++n) {
    auto agent = std::make_unique<Agent>();
    agent->node = job_->cluster.nodes[n].name;
    agent->id = NodeId(n);
    agent->nonce = std::uint64_t{n} << 20U;
    for (std::uint32_t d = 0; d < job_->cluster.type_of(agent->id).devices; ++d) {
      agent->ranks.push_back({.id = job_->cluster.rank_of(agent->id, d)});
    }
    agent_by_node_[agent->node] = agent.get();
    agents_.push_back(std::move(agent));
  }
  boot();
  for (const auto& agent : agents_) {
    at(draw(0, 1), [this, a = agent.get()] {
      start_agent(*a);
      connect(*a);
    });
  }
  at(kTickS, [this] { fault_tick(); });
  at(0.5, [this] { start_step(); });
}

Sim::~Sim() = default;

void Sim::trace(const std::string& what) const {
  static const bool wanted = std::getenv("TAPAS_TRACE") != nullptr;
  if (wanted) {
    std::printf("%10.3f %s\n", now_s_, what.c_str());
  }
}

void Sim::at(double delay_s, std::function<void()> what) {
  queue_.push({now_s_ + delay_s, ++order_, std::move(what)});
}

double Sim::draw(double least, double most) {
  return least + (most - least) * static_cast<double>(random_() >> 11U) * 0x1.0p-53;
}

Now Sim::clock() const {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(now_s_ + 1000));
  return {since,
          1'700'000'000'000'000'000 + since.count() + static_cast<std::int64_t>(wall_off_s_ * 1e9)};
}

void Sim::run_until(double until_s) {
  while (!queue_.empty() && queue_.top().at_s <= until_s) {
    const Timed next = queue_.top();
    queue_.pop();
    now_s_ = next.at_s;
    next.what();
  }
  now_s_ = until_s;
}

bool Sim::run_till(const std::function<bool()>& done, double for_s) {
  const double end_s = now_s_ + for_s;
  while (!done() && now_s_ < end_s) {
    run_until(now_s_ + 0.1);
  }
  return done();
}

// ------------------------------------------------------------ core and solver

void Sim::boot() {
  ++disk_.term;
  const std::vector<std::shared_ptr<const solver::Job>> jobs{job_};
  core_ = std::make_unique<Core>(options_.config, jobs, restored());
  if (options_.second_core) {
    second_core_ = std::make_unique<Core>(options_.config, jobs, restored());
  }
  if (options_.record) {
    recordings_.emplace_back();
    recording::append_beginning({"", options_.config, jobs_, restored()}, recordings_.back());
    recordings_.back() += '\n';
  }
  untold_.clear();
  told_nodes_ = disk_.nodes;
  told_pause_ = disk_.paused;
  at(0, [this, life = life_] {
    if (life == life_) {
      tell_core(Tick{});
    }
  });
}

void Sim::crash_core(double down_s) {
  trace(fmt::format("core dies for {:.2f} s", down_s));
  lose_writes();
  core_.reset();
  second_core_.reset();
  dies_after_.reset();
  ++life_;  // answers and messages on the way are gone
  unanswered_.clear();
  for (const auto& agent : agents_) {
    agent->clone_is_heard = false;
    cut(agent->node);
  }
  if (down_s == 0) {
    boot();
  } else {
    at(down_s, [this, life = life_] {
      if (life == life_) {
        boot();
      }
    });
  }
}

void Sim::restart_job() {
  trace("job starts anew");
  ++session_;
  last_step_ = 0;
  ranks_down_ = true;
  for (const auto& agent : agents_) {
    detach_ranks(*agent);
    for (Rank& rank : agent->ranks) {
      rank = {.id = rank.id};
    }
  }
  ranks_down_ = false;
  for (const auto& agent : agents_) {
    attach_ranks(*agent);
  }
}

void Sim::kill_ranks(const std::string& node, double down_s) {
  if (std::exchange(ranks_down_, true)) {
    return;
  }
  trace("ranks die on " + node);
  detach_ranks(*agent_by_node_.at(node));
  at(down_s, [this] { restart_job(); });
}

void Sim::set_clock(const std::string& node, double off_s) { clock_off_s_[node] = off_s; }

void Sim::record(const Event& event, const std::vector<Action>& actions) {
  if (options_.record) {
    recording::append_step(jobs_, event, clock(), actions, recordings_.back());
    recordings_.back() += '\n';
  }
}

void Sim::tell_core(const Event& event) {
  if (!core_) {
    return;
  }
  const auto before = core_->plan(job_->name);
  std::vector<Action> actions = core_->apply(event, clock());
  record(event, actions);
  check_second_core(event, actions);
  check_actions(event, actions);
  check_plan_of_core(before);
  if (!dies_after_ && chance(options_.faults.core_dies_between)) {
    dies_after_ = random_() % (actions.size() + 1);
  }
  for (Action& action : actions) {
    if (dies_after_ && (*dies_after_)-- == 0) {
      crash_core();
      return;
    }
    carry_out(std::move(action));
  }
}

void Sim::carry_out(Action action) {
  const auto later = [&](double delay_s, auto what) {
    at(delay_s, [this, life = life_, what] {
      if (life == life_) {
        what();
      }
    });
  };
  if (auto* message = std::get_if<SendToAgent>(&action)) {
    to_agent(*message);
  } else if (auto* store_write = std::get_if<StoreWrite>(&action)) {
    if (options_.mutation == Mutation::kCommitBeforeDurable) {
      for (const StoreRow& row : store_write->rows) {
        const auto* change = std::get_if<SwitchRow>(&row);
        for (std::size_t n = 0; change != nullptr && change->state == SwitchState::kCommitDecided &&
                                n < agents_.size();
             ++n) {
          to_agent(
              {agents_[n]->node, SwitchMessage{SwitchOrder::kCommit, job_->name, Term(disk_.term),
                                               change->from, change->to, 0, ""}});
        }
      }
    }
    queue_write(std::move(*store_write));
  } else if (std::holds_alternative<RequestPlan>(action)) {
    later(0.1, [this] {
      auto outcome = solver::solve(*job_);
      if (!outcome) {
        broken("no plan: " + outcome.error().message);
      }
      scale_ = options_.step_scale_s / solver::predict(*job_, outcome->plan).step_time_s;
      tell_core(PlanSolved{job_->name, outcome->plan, outcome->summary, 0.1});
    });
  } else if (auto* request = std::get_if<RequestReplan>(&action)) {
    later(draw(0.01, 0.1), [this, r = std::move(*request)] { solve(r); });
  } else if (auto* reply = std::get_if<OperatorReply>(&action)) {
    check_reply(*reply);
    unanswered_.erase(reply->request);
    replies_.push_back(std::move(*reply));
  } else if (auto* refused = std::get_if<RejectedInput>(&action)) {
    ++refusals_[refused->reason];
  }
}

void Sim::solve(const RequestReplan& request) {
  // By evaluations, as the outcome must not depend on a clock; few, as there are many seeds.
  solver::ReplanLimits limits;
  limits.evaluations = 500;
  ReplanSolved answer{job_->name, request.request,
                      solver::micro_replan(*job_, request.problem, limits), 0.01};
  if (answer.proposal) {
    answer.lesser = lesser_answers(*job_, request.problem, *answer.proposal, limits);
  }
  tell_core(answer);
}

// ------------------------------------------------------------ for tests

void Sim::slow_links(const std::string& node, const solver::NodeLinks& links) {
  truth_.node_links.resize(job_->cluster.nodes.size());
  truth_.node_links[job_->cluster.find(node)->value()] = links;
}

void Sim::slow_path(const std::string& from, const std::string& to, double factor) {
  truth_.paths = {{*job_->cluster.find(from), *job_->cluster.find(to), factor}};
}

void Sim::slow(const std::string& node, double slowdown) {
  const NodeId id = *job_->cluster.find(node);
  for (std::uint32_t d = 0; d < job_->cluster.type_of(id).devices; ++d) {
    truth_.device_slowdown[job_->cluster.rank_of(id, d).value()] = slowdown;
  }
}

void Sim::send(OperatorCommand command) {
  if (core_) {
    unanswered_[command.request] = command;
    tell_core(Event(std::move(command)));
  }
}

StatusView Sim::status() const { return core_->status(clock()); }

JobView Sim::view() const { return status().jobs.front(); }

std::vector<EventRow> Sim::events(const std::string& kind) const {
  std::vector<EventRow> out;
  std::copy_if(disk_.events.begin(), disk_.events.end(), std::back_inserter(out),
               [&](const EventRow& row) { return row.kind == kind; });
  return out;
}

bool Sim::settled() const {
  const auto plan = core_ ? core_->plan(job_->name) : nullptr;
  if (!plan) {
    return false;
  }
  const bool agents = std::all_of(agents_.begin(), agents_.end(), [&](const auto& agent) {
    return agent->up && agent->protocol->active_epoch(job_->name) == plan->epoch.value() &&
           agent->protocol->pending_epoch(job_->name) == 0 &&
           std::all_of(agent->ranks.begin(), agent->ranks.end(), [&](const Rank& rank) {
             return rank.epoch == plan->epoch && rank.pending == Epoch{};
           });
  });
  const bool switches =
      std::none_of(disk_.switches.begin(), disk_.switches.end(), [](const auto& entry) {
        return entry.second.state == SwitchState::kRunning ||
               entry.second.state == SwitchState::kCommitDecided;
      });
  return agents && switches && running_epoch_ == plan->epoch;
}

std::string Sim::why() const {
  const auto plan = core_ ? core_->plan(job_->name) : nullptr;
  std::string text = plan ? fmt::format("{:.2f} s: core of term {} at {}, {}", now_s_, disk_.term,
                                        plan->epoch, view().phase)
                          : std::string("core without a plan");
  for (const auto& agent : agents_) {
    text += fmt::format("; {}{}", agent->node, agent->up ? "" : " away");
    if (agent->protocol) {
      text += fmt::format(" at {}+{}", agent->protocol->active_epoch(job_->name),
                          agent->protocol->pending_epoch(job_->name));
    }
    for (const Rank& rank : agent->ranks) {
      text += fmt::format(" r{} {}+{}{}", rank.id, rank.epoch, rank.pending,
                          rank.holding ? " holds" : "");
    }
  }
  for (const auto& [epoch, row] : disk_.switches) {
    if (row.state == SwitchState::kRunning || row.state == SwitchState::kCommitDecided) {
      text += fmt::format("; switch to {} is open", epoch);
    }
  }
  return text;
}

}  // namespace tapas::daemon::sim
