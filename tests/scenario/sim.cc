#include "tests/scenario/sim.h"

#include "daemon/core/answers.h"
#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/predict.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tapas::daemon::sim {
namespace {

constexpr double kTickS = 0.25;
constexpr std::uint64_t kTicksPerHeartbeat = 4;
constexpr double kPatienceS = 20.0;  // of an agent that waits for the next order
constexpr double kLinkJitter = 0.03;
constexpr double kJobStartS = 1.7e9;

void broken(const std::string& what) { throw std::logic_error("invariant broken: " + what); }

bool same_content(const solver::Plan& a, const solver::Plan& b) {
  return a.pp_splits == b.pp_splits && a.tp_width == b.tp_width && a.checkpoint == b.checkpoint &&
         a.microbatches == b.microbatches && a.placement == b.placement &&
         a.replica_splits == b.replica_splits && a.parent == b.parent;
}

}  // namespace

/// The agent of a node together with its ranks: it obeys at once or when the step ends.
struct Sim::Agent {
  enum class Part { kNone, kPrepared, kArmed, kHeld, kTransferred };
  std::string node;
  NodeId id;
  std::uint64_t nonce = 1;
  Term term;
  bool up = false;         ///< connection stands
  std::uint64_t line = 0;  ///< connection number; messages of an older one are lost
  double last_ack_s = 0;
  double to_core_free_s = 0;  ///< order of messages within a connection
  double to_agent_free_s = 0;
  Epoch epoch;
  Epoch pending;
  Epoch plan_for;  ///< newest plan received
  Part part = Part::kNone;
  std::uint64_t arm_step = 0;
  double order_at_s = 0;
  std::uint64_t records = 0;
};

Sim::Sim(std::shared_ptr<const solver::Job> job, Options options)
    : job_(std::move(job)), options_(options), random_(options.seed) {
  truth_.device_slowdown.assign(job_->cluster.device_count(), 1.0);
  for (std::uint32_t n = 0; n < job_->cluster.nodes.size(); ++n) {
    auto agent = std::make_unique<Agent>();
    agent->node = job_->cluster.nodes[n].name;
    agent->id = NodeId(n);
    agent_by_node_[agent->node] = agent.get();
    agents_.push_back(std::move(agent));
  }
  boot();
  for (const auto& agent : agents_) {
    at(draw(0, 1), [this, a = agent.get()] { connect(*a); });
  }
  at(kTickS, [this] { fault_tick(); });
  at(0.5, [this] { start_step(); });
}

Sim::~Sim() = default;

void Sim::at(double delay_s, std::function<void()> what) {
  queue_.push({now_s_ + delay_s, ++order_, std::move(what)});
}

double Sim::draw(double least, double most) {
  return least + (most - least) * static_cast<double>(random_() >> 11U) * 0x1.0p-53;
}

Now Sim::clock() const {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(now_s_ + 1000));
  return {since, 1'700'000'000'000'000'000 + since.count()};
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

// ------------------------------------------------------------ core, store and solver

void Sim::boot() {
  Restored restored;
  restored.term = Term(++disk_.term);
  RestoredJob& job = restored.jobs[job_->name];
  for (const auto& [epoch, row] : disk_.plans) {
    job.highest_epoch = epoch;
    if (row.status == PlanStatus::kActive) {
      if (job.active) {
        broken(
            fmt::format("plans {} and {} are both active in the store", job.active->epoch, epoch));
      }
      job.active = row.plan;
    }
  }
  for (const auto& [epoch, row] : disk_.switches) {
    if (row.state == SwitchState::kRunning || row.state == SwitchState::kCommitDecided) {
      job.open_switches.push_back(row);
      job.pending = disk_.plans.at(epoch).plan;
    }
  }
  job.last_decision = disk_.decisions.empty() ? 0 : disk_.decisions.rbegin()->first;
  for (const auto& [node, row] : disk_.nodes) {
    restored.nodes.push_back(row);
  }
  for (const auto& [device, row] : disk_.devices) {
    job.devices.push_back(row);
  }
  job.learnt = disk_.learnt;
  for (const auto& [epoch, row] : disk_.automatic_switches) {
    job.switches.push_back(row);
  }
  job.trial = disk_.trial;
  if (const auto tried = disk_.plans.find(disk_.trial.epoch); tried != disk_.plans.end()) {
    job.before_trial = disk_.plans.at(tried->second.plan->parent).plan;
  }
  job.loss = disk_.loss;
  for (const auto& [ends, row] : disk_.slow_links) {
    job.slow_links.push_back(row);
  }
  restored.paused = disk_.paused;
  ++life_;
  core_ = std::make_unique<Core>(options_.config,
                                 std::vector<std::shared_ptr<const solver::Job>>{job_}, restored);
  at(0, [this, life = life_] {
    if (life == life_) {
      tell_core(Tick{});
    }
  });
}

void Sim::crash_core(double down_s) {
  core_.reset();
  ++life_;  // writes, answers and messages on the way are gone
  for (const auto& agent : agents_) {
    cut(agent->node);
  }
  if (down_s == 0) {
    boot();
  } else {
    at(down_s, [this] { boot(); });
  }
}

void Sim::restart_job() {
  ++session_;
  last_step_ = 0;
}

void Sim::set_clock(const std::string& node, double off_s) { clock_off_s_[node] = off_s; }

void Sim::tell_core(const Event& event) {
  if (!core_) {
    return;
  }
  const auto old = core_->plan(job_->name);
  const Epoch before = old ? old->epoch : Epoch{};
  for (Action& action : core_->apply(event, clock())) {
    carry_out(std::move(action));
  }
  const auto plan = core_->plan(job_->name);
  if (plan && plan->epoch < before) {
    broken("the core's epoch went back");
  }
  if (plan && plan->epoch != before) {
    const auto stored = disk_.plans.find(plan->epoch);
    if (stored == disk_.plans.end() || stored->second.status != PlanStatus::kActive) {
      broken(fmt::format("plan {} is active in the core but not on disk", plan->epoch));
    }
    if (const auto ok = solver::check_plan(*job_, *plan); !ok) {
      broken("an invalid plan became active: " + ok.error().message);
    }
    if (old) {
      for (const std::string& violation : solver::switch_violations(*job_, *old, *plan)) {
        broken("a switch that the running job could not make: " + violation);
      }
    }
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
    later(draw(0.001, 0.02), [this, w = std::move(*store_write)] { write(w); });
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

void Sim::write(StoreWrite write) {
  if (write.write != 0 && chance(options_.faults.store_failures)) {
    tell_core(StoreDone{write.write, fail(ErrorCode::kIo, "the disk is full")});
    return;
  }
  for (const StoreRow& row : write.rows) {
    make_durable(row);
  }
  if (write.write != 0) {
    tell_core(StoreDone{write.write, {}});
  }
}

void Sim::make_durable(const StoreRow& row) {
  if (const auto* plan = std::get_if<PlanRow>(&row)) {
    const auto [found, fresh] = disk_.plans.try_emplace(plan->plan->epoch, *plan);
    if (!fresh && !same_content(*found->second.plan, *plan->plan)) {
      broken(fmt::format("epoch {} was given to two plans", plan->plan->epoch));
    }
    found->second.status = plan->status;
  } else if (const auto* change = std::get_if<SwitchRow>(&row)) {
    disk_.switches[change->to] = *change;
  } else if (const auto* decision = std::get_if<DecisionRow>(&row)) {
    disk_.decisions[decision->decision] = *decision;
  } else if (const auto* node = std::get_if<NodeStateRow>(&row)) {
    disk_.nodes[node->node] = *node;
  } else if (const auto* device = std::get_if<DeviceRow>(&row)) {
    disk_.devices[device->device] = *device;
  } else if (const auto* learnt = std::get_if<LearntRow>(&row)) {
    disk_.learnt = *learnt;
  } else if (const auto* automatic = std::get_if<AutomaticSwitchRow>(&row)) {
    disk_.automatic_switches[automatic->epoch] = *automatic;
  } else if (const auto* trial = std::get_if<TrialRow>(&row)) {
    disk_.trial = *trial;
  } else if (const auto* loss = std::get_if<LossRow>(&row)) {
    disk_.loss = *loss;
  } else if (const auto* link = std::get_if<SlowLinkRow>(&row)) {
    disk_.slow_links[{link->from, link->to}] = *link;
  } else if (const auto* more = std::get_if<DecisionAmendment>(&row)) {
    if (const auto found = disk_.decisions.find(more->decision); found != disk_.decisions.end()) {
      std::vector<Evidence>& evidence = found->second.evidence;
      for (const Evidence& entry : more->evidence) {
        std::erase_if(evidence, [&](const Evidence& old) { return old.key == entry.key; });
        evidence.push_back(entry);
      }
    }
  } else if (const auto* action = std::get_if<OperatorRow>(&row)) {
    if (action->action == "auto off") {
      disk_.paused = auto_reason(false, action->who, action->reason);
    } else if (action->action == "auto on") {
      disk_.paused.reset();
    }
  } else if (const auto* event = std::get_if<EventRow>(&row)) {
    disk_.events.push_back(*event);
  }
}

// ------------------------------------------------------------ network

void Sim::cut(const std::string& node) {
  Agent& agent = *agent_by_node_.at(node);
  agent.up = false;
  ++agent.line;
  // Some stay away for longer than the core waits for them.
  at(chance(0.15) ? draw(4, 15) : draw(0.1, 1.5), [this, a = &agent, line = agent.line] {
    if (line == a->line) {
      connect(*a);
    }
  });
}

void Sim::connect(Agent& agent) {
  agent.up = true;
  agent.last_ack_s = now_s_;
  agent.to_core_free_s = agent.to_agent_free_s = now_s_;
  hello(agent);
}

void Sim::restart_agent(const std::string& node) {
  Agent& agent = *agent_by_node_.at(node);
  ++agent.nonce;
  if (agent.part != Agent::Part::kTransferred) {
    rest(agent);  // The ranks gave up with it.
  }
  cut(node);
}

void Sim::kill_agent(const std::string& node) {
  Agent& agent = *agent_by_node_.at(node);
  agent.up = false;
  ++agent.line;
}

void Sim::to_core(Agent& agent, Event event) {
  if (!agent.up) {
    return;
  }
  agent.to_core_free_s =
      std::max(agent.to_core_free_s, now_s_ + draw(0.001, options_.faults.max_delay_s));
  at(agent.to_core_free_s - now_s_,
     [this, a = &agent, line = agent.line, life = life_, e = std::move(event)] {
       if (line == a->line && life == life_) {
         tell_core(e);
       }
     });
}

void Sim::to_agent(const SendToAgent& message) {
  const auto found = agent_by_node_.find(message.node);
  if (found == agent_by_node_.end() || !found->second->up) {
    return;
  }
  Agent& agent = *found->second;
  agent.to_agent_free_s =
      std::max(agent.to_agent_free_s, now_s_ + draw(0.001, options_.faults.max_delay_s));
  at(agent.to_agent_free_s - now_s_, [this, a = &agent, line = agent.line, m = message] {
    if (line == a->line) {
      receive(*a, m);
    }
  });
}

void Sim::hello(Agent& agent) {
  JobAttachment attachment;
  attachment.job = job_->name;
  attachment.session = session_;
  attachment.epoch = agent.epoch;
  attachment.pending_epoch = agent.pending;
  for (std::uint32_t d = 0; d < job_->cluster.type_of(agent.id).devices; ++d) {
    const RankId rank = job_->cluster.rank_of(agent.id, d);
    const auto seat = seats_.find(rank);
    attachment.ranks.push_back({rank, seat == seats_.end() ? "" : seat->second, 1});
  }
  to_core(agent, AgentHello{agent.node, agent.nonce, agent.term, {attachment}});
}

// ------------------------------------------------------------ agents

void Sim::receive(Agent& agent, const SendToAgent& message) {
  const auto fence = [&](Term term) {
    const bool ok = term >= agent.term;
    agent.term = std::max(agent.term, term);
    return ok;
  };
  if (const auto* welcome = std::get_if<WelcomeMessage>(&message.message)) {
    fence(welcome->term);
    agent.last_ack_s = now_s_;
  } else if (const auto* ack = std::get_if<HeartbeatAckMessage>(&message.message)) {
    fence(ack->term);
    agent.last_ack_s = now_s_;
  } else if (std::holds_alternative<RejectMessage>(message.message)) {
    hello(agent);
  } else if (const auto* plan = std::get_if<PlanMessage>(&message.message)) {
    if (fence(plan->term)) {
      receive_plan(agent, *plan);
    }
  } else if (const auto* order = std::get_if<SwitchMessage>(&message.message)) {
    if (fence(order->term)) {
      receive_order(agent, *order);
    }
  }
}

void Sim::receive_plan(Agent& agent, const PlanMessage& message) {
  const Epoch epoch = message.plan->epoch;
  const auto [found, fresh] = plans_.try_emplace(epoch, message.plan);
  if (!fresh && !same_content(*found->second, *message.plan)) {
    broken(fmt::format("agents were sent two plans of epoch {}", epoch));
  }
  agent.plan_for = epoch;
  if (message.active && epoch > agent.epoch) {
    commit(agent, epoch);
    hello(agent);
  }
}

void Sim::rest(Agent& agent) {
  agent.pending = Epoch{};
  agent.part = Agent::Part::kNone;
}

void Sim::commit(Agent& agent, Epoch epoch) {
  const auto stored = disk_.plans.find(epoch);
  const auto change = disk_.switches.find(epoch);
  if (stored == disk_.plans.end() || (stored->second.status != PlanStatus::kActive &&
                                      stored->second.status != PlanStatus::kSuperseded)) {
    broken(fmt::format("{} commits epoch {} that is not durably active", agent.node, epoch));
  }
  if (change != disk_.switches.end() && change->second.state != SwitchState::kCommitDecided &&
      change->second.state != SwitchState::kDone) {
    broken(fmt::format("{} commits epoch {} that was not decided", agent.node, epoch));
  }
  if (epoch <= agent.epoch) {
    broken(fmt::format("{} goes from epoch {} to {}", agent.node, agent.epoch, epoch));
  }
  agent.epoch = epoch;
  rest(agent);
}

void Sim::vote(Agent& agent, SwitchPhase phase, bool ok, const std::string& reason) {
  to_core(agent, AgentVote{agent.node, job_->name, agent.pending, phase, ok, reason, last_step_,
                           phase == SwitchPhase::kTransferred ? 1000U : 0U, 0.01});
}

void Sim::receive_order(Agent& agent, const SwitchMessage& order) {
  using Part = Agent::Part;
  const auto answer = [&](SwitchPhase phase, bool ok, const std::string& reason) {
    to_core(agent, AgentVote{agent.node, job_->name, order.to, phase, ok, reason, last_step_,
                             phase == SwitchPhase::kTransferred ? 1000U : 0U, 0.01});
  };
  if (order.to <= agent.epoch) {
    if (order.order == SwitchOrder::kCommit && order.to == agent.epoch) {
      answer(SwitchPhase::kCommitted, true, "");
    }
    return;
  }
  agent.order_at_s = now_s_;
  switch (order.order) {
    case SwitchOrder::kPrepare:
      if (agent.epoch != order.from || (agent.pending != Epoch{} && agent.pending != order.to) ||
          agent.plan_for != order.to) {
        answer(SwitchPhase::kPrepared, false, "not the plan this node runs");
        return;
      }
      agent.pending = order.to;
      agent.part = Part::kPrepared;
      answer(SwitchPhase::kPrepared, true, "");
      return;
    case SwitchOrder::kArm:
      if (agent.pending != order.to || agent.part != Part::kPrepared) {
        answer(SwitchPhase::kArmed, false, "not prepared");
      } else if (last_step_ > order.at_step) {
        answer(SwitchPhase::kArmed, false, "the step has passed");
      } else {
        agent.arm_step = order.at_step;
        agent.part = Part::kArmed;
        if (last_step_ == order.at_step) {
          agent.part = Part::kHeld;
          answer(SwitchPhase::kArmed, true, "");
        }
      }
      return;
    case SwitchOrder::kTransfer:
      if (agent.pending != order.to || agent.part != Part::kHeld) {
        answer(SwitchPhase::kTransferred, false, "not held");
        return;
      }
      at(draw(0.01, 0.2), [this, a = &agent, epoch = order.to] {
        if (a->pending == epoch && a->part == Part::kHeld) {
          a->part = Part::kTransferred;
          vote(*a, SwitchPhase::kTransferred, true, "");
        }
      });
      return;
    case SwitchOrder::kCommit:
      if (agent.pending != order.to || agent.part != Part::kTransferred) {
        broken(fmt::format("{} got COMMIT of epoch {} without having transferred", agent.node,
                           order.to));
      }
      commit(agent, order.to);
      answer(SwitchPhase::kCommitted, true, "");
      return;
    case SwitchOrder::kAbort:
      if (const auto change = disk_.switches.find(order.to);
          change != disk_.switches.end() && (change->second.state == SwitchState::kCommitDecided ||
                                             change->second.state == SwitchState::kDone)) {
        broken(fmt::format("{} got ABORT of epoch {} that was decided", agent.node, order.to));
      }
      if (agent.pending == order.to) {
        rest(agent);
      }
      answer(SwitchPhase::kAborted, true, order.reason);
      return;
  }
}

/// Heartbeats, the agents' patience, and the faults of the next quarter of a second.
void Sim::fault_tick() {
  at(kTickS, [this] { fault_tick(); });
  tell_core(Tick{});
  const bool beat = ++ticks_ % kTicksPerHeartbeat == 0;
  const Faults& faults = options_.faults;
  for (const auto& owned : agents_) {
    Agent& agent = *owned;
    if (agent.up && beat) {
      to_core(agent, AgentHeartbeat{agent.node, agent.records, 0});
      if (now_s_ - agent.last_ack_s > 3.0) {
        cut(agent.node);
      }
    }
    // A node that has transferred may not decide by itself: the daemon may have.
    if (agent.pending != Epoch{} && agent.part != Agent::Part::kTransferred &&
        now_s_ - agent.order_at_s > kPatienceS) {
      vote(agent, SwitchPhase::kAborted, true, "no order for too long");
      rest(agent);
    }
    if (chance(faults.link_cuts_per_s * kTickS)) {
      cut(agent.node);
    } else if (chance(faults.agent_restarts_per_s * kTickS)) {
      restart_agent(agent.node);
    }
  }
  if (chance(faults.core_crashes_per_s * kTickS)) {
    crash_core();
  }
}

// ------------------------------------------------------------ training

const solver::Plan& Sim::plan_of(Epoch epoch) const { return *plans_.at(epoch); }

/// A step starts when nobody holds and all nodes with a position run one epoch.
void Sim::start_step() {
  const auto wait = [this] { at(0.05, [this] { start_step(); }); };
  Epoch epoch;
  for (const auto& agent : agents_) {
    if (agent->part == Agent::Part::kHeld || agent->part == Agent::Part::kTransferred) {
      wait();
      return;
    }
    epoch = std::max(epoch, agent->epoch);
  }
  if (epoch == Epoch{}) {
    wait();
    return;
  }
  for (const auto& replica : plan_of(epoch).placement) {
    for (const solver::Position& position : replica) {
      if (agents_[position.node.value()]->epoch != epoch) {
        wait();
        return;
      }
    }
  }
  running_epoch_ = epoch;
  const OddStep odd = odd_ ? odd_(last_step_ + 1) : OddStep{};
  const double step_s = solver::predict(*job_, plan_of(epoch), truth_).step_time_s * scale_ *
                            extra_ratio_ * odd.job_factor +
                        odd.extra_s;
  at(step_s, [this, epoch, odd, begin_s = now_s_] { end_step(epoch, begin_s, odd); });
}

void Sim::end_step(Epoch epoch, double begin_s, const OddStep& odd) {
  const solver::Plan& plan = plan_of(epoch);
  const auto compute = solver::stage_compute(*job_, plan);
  ++last_step_;
  last_step_s_ = now_s_ - begin_s;
  std::map<NodeId, StepBatch> batches;
  std::normal_distribution<double> noise(1.0, options_.jitter);
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const solver::Position& position = plan.placement[r][s];
      for (const std::uint16_t device : position.devices) {
        const RankId rank = job_->cluster.rank_of(position.node, device);
        double factor = truth_.slowdown(rank) * std::max(0.2, noise(random_)) * scale_ *
                        plan.microbatches[r] * odd.job_factor;
        if (odd.lost.contains(rank)) {
          continue;
        }
        StepSample sample;
        sample.job = name_hash(job_->name);
        sample.session = session_;
        sample.node = name_hash(job_->cluster.nodes[position.node.value()].name);
        sample.rank = rank;
        sample.epoch = epoch;
        sample.step = last_step_;
        const auto off = clock_off_s_.find(agents_[position.node.value()]->node);
        sample.end_time_s = kJobStartS + now_s_ + (off == clock_off_s_.end() ? 0 : off->second);
        sample.flags = flags_ | odd.flags;
        sample.microbatches = plan.microbatches[r];
        if (const auto waits = odd.input_s.find(rank); waits != odd.input_s.end()) {
          sample.input_wait_s = waits->second;
        }
        if (const auto work = odd.work.find(rank); work != odd.work.end()) {
          factor *= work->second;
          sample.work_tokens = static_cast<std::uint32_t>(4096 * work->second);
        }
        sample.wall_s = last_step_s_;
        sample.forward_s = std::min(compute[r][s].forward_s * factor, last_step_s_ / 3);
        sample.backward_s = std::min(compute[r][s].backward_s * factor, last_step_s_ * 2 / 3);
        if (odd.in_ms.contains(rank)) {
          for (double* time_s : {&sample.wall_s, &sample.forward_s, &sample.backward_s}) {
            *time_s *= 1000;
          }
        }
        batches[position.node].samples.push_back(sample);
      }
    }
  }
  send_links(plan, batches);
  for (auto& [node, batch] : batches) {
    Agent& agent = *agents_[node.value()];
    batch.node = agent.node;
    agent.records += batch.samples.size();
    to_core(agent, std::move(batch));
  }
  for (const auto& agent : agents_) {
    if (agent->part == Agent::Part::kArmed && last_step_ >= agent->arm_step) {
      agent->part = Agent::Part::kHeld;
      vote(*agent, SwitchPhase::kArmed, true, "");
    }
  }
  start_step();
}

void Sim::send_links(const solver::Plan& plan, std::map<NodeId, StepBatch>& batches) {
  constexpr double kBytes = 1e8;
  std::normal_distribution<double> noise(1.0, kLinkJitter);
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s + 1 < plan.stages(); ++s) {
      for (const bool forward : {true, false}) {
        const solver::Position& from = plan.placement[r][forward ? s : s + 1];
        const solver::Position& to = plan.placement[r][forward ? s + 1 : s];
        if (from.node == to.node || !batches.contains(from.node)) {
          continue;
        }
        const double slow = std::max(truth_.links(from.node).send, truth_.links(to.node).receive) *
                            truth_.path(from.node, to.node);
        batches[from.node].links.push_back(
            {.job = name_hash(job_->name),
             .session = session_,
             .destination = name_hash(job_->cluster.nodes[to.node.value()].name),
             .rank = job_->cluster.rank_of(from.node, from.devices.front()),
             .peer = job_->cluster.rank_of(to.node, to.devices.front()),
             .end_time_s = kJobStartS + now_s_,
             .bytes = kBytes,
             .transfer_s = kBytes / 2e10 * slow * std::max(0.5, noise(link_random_))});
      }
    }
  }
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

void Sim::send(OperatorCommand command) { tell_core(Event(std::move(command))); }

JobView Sim::view() const { return core_->status(clock()).jobs.front(); }

std::vector<EventRow> Sim::events(const std::string& kind) const {
  std::vector<EventRow> out;
  std::copy_if(disk_.events.begin(), disk_.events.end(), std::back_inserter(out),
               [&](const EventRow& row) { return row.kind == kind; });
  return out;
}

bool Sim::settled() const {
  const auto plan = core_->plan(job_->name);
  if (!plan) {
    return false;
  }
  const bool agents = std::all_of(agents_.begin(), agents_.end(), [&](const auto& agent) {
    return agent->up && agent->epoch == plan->epoch && agent->pending == Epoch{};
  });
  const bool switches =
      std::none_of(disk_.switches.begin(), disk_.switches.end(), [](const auto& entry) {
        return entry.second.state == SwitchState::kRunning ||
               entry.second.state == SwitchState::kCommitDecided;
      });
  return agents && switches && running_epoch_ == plan->epoch;
}

}  // namespace tapas::daemon::sim
