#include "tests/scenario/sim_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tapas::daemon::sim {
namespace {

using agent::AgentProtocol;
using agent::RankOrder;

constexpr double kPatienceS = 20.0;  // of an agent that waits for the next order
constexpr double kRanksPatienceS = 30.0;
constexpr double kRehelloS = 10.0;
constexpr double kLongestDetourS = 20.0;

agent::TimePoint time_point(double now_s) {
  return agent::TimePoint(std::chrono::duration_cast<agent::TimePoint::duration>(
      std::chrono::duration<double>(now_s + 1000)));
}

AgentProtocol::Options protocol_options(const std::string& node, std::uint64_t nonce) {
  AgentProtocol::Options options;
  options.node = node;
  options.nonce = nonce;
  options.order_timeout = agent::Seconds(kPatienceS);
  options.phase_timeout = agent::Seconds(kRanksPatienceS);
  options.rehello_interval = agent::Seconds(kRehelloS);
  return options;
}

wire::SwitchOrder wire_order(SwitchOrder order) {
  return static_cast<wire::SwitchOrder>(static_cast<int>(order));
}
static_assert(static_cast<int>(wire::SwitchOrder::kAbort) == static_cast<int>(SwitchOrder::kAbort));
static_assert(static_cast<int>(wire::Phase::kAborted) == static_cast<int>(SwitchPhase::kAborted));

struct ToWire {
  wire::ToAgent operator()(const WelcomeMessage& m) const {
    return wire::Welcome{m.term.value(), m.heartbeat_s};
  }
  wire::ToAgent operator()(const RejectMessage& m) const {
    return wire::Reject{m.reason, m.retry_after_s};
  }
  wire::ToAgent operator()(const HeartbeatAckMessage& m) const {
    return wire::HeartbeatAck{m.term.value()};
  }
  wire::ToAgent operator()(const PlanMessage& m) const {
    // Its text is looked up by its epoch.
    return wire::PlanChunk{m.job, m.term.value(), m.plan->epoch.value(), m.active, 0, 1, "plan"};
  }
  wire::ToAgent operator()(const SwitchMessage& m) const {
    return wire::SwitchCommand{wire_order(m.order), m.job,     m.term.value(), m.from.value(),
                               m.to.value(),        m.at_step, m.reason};
  }
};

}  // namespace

// ------------------------------------------------------------ connections

void Sim::start_agent(Agent& agent) {
  agent.protocol = std::make_unique<AgentProtocol>(protocol_options(agent.node, ++agent.nonce));
  if (!ranks_down_) {
    attach_ranks(agent);
  }
}

void Sim::attach_ranks(Agent& agent) {
  if (!agent.protocol) {
    return;
  }
  for (const Rank& rank : agent.ranks) {
    agent::LocalRank local;
    const auto seat = seats_.find(rank.id);
    local.info = {rank.id.value(), seat == seats_.end() ? "" : seat->second, 1};
    local.epoch = rank.epoch.value();
    local.pending_epoch = rank.pending.value();
    local.done = rank.done;
    agent.protocol->attach_rank(job_->name, session_, local, time_point(now_s_));
  }
}

void Sim::detach_ranks(Agent& agent) {
  if (!agent.protocol) {
    return;
  }
  for (const Rank& rank : agent.ranks) {
    agent.protocol->detach_rank(job_->name, rank.id.value(), time_point(now_s_));
  }
  pump(agent);
}

void Sim::connect(Agent& agent) {
  agent.up = true;
  agent.to_core_free_s = agent.to_agent_free_s = now_s_;
  agent.protocol->connected(time_point(now_s_));
  pump(agent);
}

void Sim::cut(const std::string& node) {
  Agent& agent = *agent_by_node_.at(node);
  trace("cut " + node);
  if (!agent.protocol) {
    return;
  }
  if (agent.up) {
    agent.protocol->disconnected(time_point(now_s_));
  }
  agent.up = false;
  ++agent.line;
  // Some stay away for longer than the core waits for them.
  at(chance(0.15) ? draw(4, 15) : draw(0.1, 1.5), [this, a = &agent, line = agent.line] {
    if (line == a->line) {
      connect(*a);
    }
  });
}

void Sim::restart_agent(const std::string& node) {
  trace("agent restarts on " + node);
  Agent& agent = *agent_by_node_.at(node);
  if (agent.protocol) {
    start_agent(agent);
    agent.up = false;
    cut(node);
  }
}

void Sim::kill_agent(const std::string& node) {
  Agent& agent = *agent_by_node_.at(node);
  agent.protocol.reset();
  agent.up = false;
  ++agent.line;
}

void Sim::mute(const std::string& node, double for_s) {
  agent_by_node_.at(node)->mute_until_s = now_s_ + for_s;
}

void Sim::deafen(const std::string& node, double for_s) {
  agent_by_node_.at(node)->deaf_until_s = now_s_ + for_s;
}

void Sim::clash(const std::string& node, double for_s) {
  Agent& agent = *agent_by_node_.at(node);
  agent.clone = std::make_unique<AgentProtocol>(protocol_options(node, random_()));
  agent.clone->connected(time_point(now_s_));
  pump_clone(agent);
  at(for_s, [a = &agent, clone = agent.clone.get()] {
    if (a->clone.get() == clone) {
      a->clone.reset();
      a->clone_is_heard = false;
    }
  });
}

/// What happens to a message on its way: it arrives in its turn, later, twice or never.
void Sim::carry(double delay_s, double& free_s, const std::function<void(bool late)>& deliver) {
  if (chance(options_.faults.repeated)) {
    at(draw(0.1, kLongestDetourS), [deliver] { deliver(true); });
  }
  if (chance(options_.faults.lost)) {
    return;
  }
  double arrives_s = now_s_ + delay_s;
  if (!chance(options_.faults.overtaken)) {
    arrives_s = free_s = std::max(free_s, arrives_s);
  }
  at(arrives_s - now_s_, [deliver] { deliver(false); });
}

void Sim::to_core(Agent& agent, const Event& event, bool from_clone) {
  if (!from_clone && (!agent.up || now_s_ < agent.mute_until_s)) {
    return;
  }
  carry(draw(0.001, options_.faults.max_delay_s), agent.to_core_free_s,
        [this, a = &agent, line = agent.line, life = life_, e = event, from_clone](bool late) {
          if (late || from_clone || (line == a->line && life == life_)) {
            hear(*a, e, from_clone);
          }
        });
}

void Sim::hear(Agent& agent, const Event& event, bool from_clone) {
  if (from_clone && !agent.clone) {
    return;
  }
  if (std::holds_alternative<AgentHello>(event)) {
    agent.clone_is_heard = from_clone;
  } else if (from_clone != agent.clone_is_heard) {
    // As the daemon's net thread does with a connection that is not the one that said HELLO.
    const RejectMessage again{"say HELLO first", options_.config.heartbeat_s};
    (from_clone ? agent.clone : agent.protocol)->received(ToWire()(again), time_point(now_s_));
    return;
  }
  if (const auto* vote = std::get_if<AgentVote>(&event)) {
    trace(fmt::format("core hears {} vote {} on {}: {} {}", vote->node,
                      static_cast<int>(vote->phase), vote->epoch, vote->ok, vote->reason));
  } else if (const auto* hello = std::get_if<AgentHello>(&event)) {
    for (const JobAttachment& job : hello->jobs) {
      trace(fmt::format("core hears {} hello {} term {} at {}+{}", hello->node, hello->nonce,
                        hello->term, job.epoch, job.pending_epoch));
    }
  }
  tell_core(event);
}

void Sim::to_agent(const SendToAgent& message) {
  const auto found = agent_by_node_.find(message.node);
  if (found == agent_by_node_.end()) {
    return;
  }
  Agent& agent = *found->second;
  if (options_.mutation == Mutation::kVotesNotCounted) {
    if (const auto* order = std::get_if<SwitchMessage>(&message.message);
        order != nullptr && order->order < SwitchOrder::kCommit) {
      at(0.001, [this, node = agent.node, o = *order] {
        tell_core(AgentVote{node, job_->name, o.to,
                            static_cast<SwitchPhase>(static_cast<int>(o.order)), true, "",
                            last_step_, 0, 0});
      });
    }
  }
  if (agent.clone && agent.clone_is_heard) {
    agent.clone->received(std::visit(ToWire(), message.message), time_point(now_s_));
    pump_clone(agent);
    return;
  }
  if (!agent.up || now_s_ < agent.deaf_until_s) {
    return;
  }
  carry(draw(0.001, options_.faults.max_delay_s), agent.to_agent_free_s,
        [this, a = &agent, line = agent.line, m = message](bool late) {
          if (a->up && (late || line == a->line)) {
            receive(*a, m);
          }
        });
}

void Sim::receive(Agent& agent, const SendToAgent& message) {
  if (message.message.index() != 2) {
    const auto* order = std::get_if<SwitchMessage>(&message.message);
    trace(fmt::format("{} hears message {} order {} of {}", agent.node, message.message.index(),
                      order == nullptr ? -1 : static_cast<int>(order->order),
                      order == nullptr ? Epoch{} : order->to));
  }
  if (const auto* plan = std::get_if<PlanMessage>(&message.message)) {
    const auto [found, fresh] = plans_.try_emplace(plan->plan->epoch, plan->plan);
    if (!fresh && !same_content(*found->second, *plan->plan)) {
      broken(fmt::format("agents were sent two plans of epoch {}", plan->plan->epoch));
    }
    const bool fenced = plan->term.value() < agent.protocol->term() ||
                        plan->plan->epoch.value() < agent.protocol->active_epoch(job_->name);
    if (fenced && options_.mutation == Mutation::kNoFencing) {
      forget(agent, plan->term);
    }
  }
  agent.protocol->received(std::visit(ToWire(), message.message), time_point(now_s_));
  pump(agent);
}

/// Leaves an agent that knows of no term or epoch, and so takes whatever comes next.
void Sim::forget(Agent& agent, Term term) {
  agent.protocol = std::make_unique<AgentProtocol>(protocol_options(agent.node, agent.nonce));
  for (const Rank& rank : agent.ranks) {
    agent::LocalRank local;
    local.info = {rank.id.value(), "", 1};
    agent.protocol->attach_rank(job_->name, session_, local, time_point(now_s_));
  }
  agent.protocol->connected(time_point(now_s_));
  agent.protocol->received(wire::Welcome{term.value(), options_.config.heartbeat_s},
                           time_point(now_s_));
}

// ------------------------------------------------------------ what agents do

Event Sim::event_of(const Agent& agent, const wire::ToDaemon& message) const {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) {
    AgentHello event{agent.node, hello->nonce, Term(hello->term), {}};
    for (const wire::Attachment& attachment : hello->attachments) {
      JobAttachment job{attachment.job,
                        attachment.session,
                        Epoch(attachment.epoch),
                        Epoch(attachment.pending_epoch),
                        {}};
      for (const wire::RankInfo& rank : attachment.ranks) {
        job.ranks.push_back({RankId(rank.rank), rank.device_uuid, rank.pid});
      }
      event.jobs.push_back(std::move(job));
    }
    return event;
  }
  if (const auto* vote = std::get_if<wire::Vote>(&message)) {
    return AgentVote{agent.node,         vote->job,
                     Epoch(vote->epoch), static_cast<SwitchPhase>(static_cast<int>(vote->phase)),
                     vote->ok,           vote->reason,
                     vote->step,         vote->bytes,
                     vote->seconds};
  }
  return AgentHeartbeat{agent.node, agent.records, 0};
}

void Sim::pump(Agent& agent) {
  for (const agent::Action& action : agent.protocol->take_actions()) {
    if (const auto* message = std::get_if<wire::ToDaemon>(&action)) {
      to_core(agent, event_of(agent, *message));
    } else if (const auto* command = std::get_if<agent::RankCommand>(&action)) {
      obey(agent, *command);
    } else if (std::holds_alternative<agent::Reconnect>(action)) {
      cut(agent.node);
    }
  }
}

void Sim::pump_clone(Agent& agent) {
  for (const agent::Action& action : agent.clone->take_actions()) {
    if (const auto* message = std::get_if<wire::ToDaemon>(&action)) {
      to_core(agent, event_of(agent, *message), true);
    } else if (std::holds_alternative<agent::Reconnect>(action)) {
      agent.clone->connected(time_point(now_s_));
    }
  }
}

void Sim::tick_agents() {
  for (const auto& agent : agents_) {
    if (agent->protocol) {
      agent->protocol->tick(time_point(now_s_));
      pump(*agent);
    }
    if (agent->clone) {
      agent->clone->tick(time_point(now_s_));
      pump_clone(*agent);
    }
  }
}

// ------------------------------------------------------------ ranks

void Sim::reply(Agent& agent, const agent::RankReply& reply) {
  // Not at once: the agent is in the middle of its own actions.
  at(0, [this, a = &agent, session = session_, r = reply] {
    if (a->protocol && session == session_ && !ranks_down_) {
      a->protocol->rank_replied(job_->name, r, time_point(now_s_));
      pump(*a);
    }
  });
}

void Sim::obey(Agent& agent, const agent::RankCommand& command) {
  const auto found = std::find_if(agent.ranks.begin(), agent.ranks.end(), [&](const Rank& rank) {
    return rank.id.value() == command.rank;
  });
  if (ranks_down_) {
    return;  // Dead, or waiting for the dead ones.
  }
  Rank& rank = *found;
  const Epoch epoch(command.epoch);
  trace(fmt::format("{} rank {} order {} epoch {} at {}+{}", agent.node, rank.id,
                    static_cast<int>(command.order), epoch, rank.epoch, rank.pending));
  const auto go_on = [&] {
    rank.pending = Epoch{};
    rank.armed_for.reset();
    rank.holding = false;
    rank.done = command.order;
    rank.trained = rank.trained && command.order == RankOrder::kAbort;
  };
  std::string refusal;
  switch (command.order) {
    case RankOrder::kAdopt:
      check_may_run(agent, rank, epoch);
      if (rank.trained && has_position(plan_of(epoch), *job_, rank.id)) {
        broken(
            fmt::format("rank {} shall run plan {} without having got its layers", rank.id, epoch));
      }
      go_on();
      rank.epoch = epoch;
      check_barrier();
      break;
    case RankOrder::kPrepare:
      rank.pending = epoch;
      rank.done = RankOrder::kPrepare;
      break;
    case RankOrder::kArm:
      if (rank.pending != epoch || rank.done != RankOrder::kPrepare) {
        refusal = "not prepared";
      } else if (last_step_ > command.at_step || (stepping_ && last_step_ == command.at_step)) {
        refusal = "the step has passed";
      } else {
        rank.armed_for = command.at_step;
        if (last_step_ < command.at_step) {
          return;  // Answered when it holds.
        }
        rank.armed_for.reset();
        rank.holding = true;
        rank.done = RankOrder::kArm;
      }
      break;
    case RankOrder::kTransfer:
      if (rank.pending != epoch || !rank.holding) {
        refusal = "not holding";
        break;
      }
      at(draw(0.01, 0.2), [this, a = &agent, r = &rank, epoch, session = session_] {
        if (session == session_ && r->pending == epoch && r->holding) {
          r->done = RankOrder::kTransfer;
          reply(*a, {r->id.value(), RankOrder::kTransfer, epoch.value(), true, "", last_step_, 1000,
                     0.01});
        }
      });
      return;
    case RankOrder::kCommit:
      if (rank.epoch == epoch) {
        break;  // Said twice.
      }
      check_may_run(agent, rank, epoch);
      if (rank.pending != epoch || rank.done != RankOrder::kTransfer) {
        broken(fmt::format("rank {} got COMMIT of epoch {} without having transferred", rank.id,
                           epoch));
      }
      go_on();
      rank.epoch = epoch;
      check_barrier();
      break;
    case RankOrder::kAbort:
      if (const auto change = disk_.switches.find(epoch);
          rank.pending == epoch && change != disk_.switches.end() &&
          (change->second.state == SwitchState::kCommitDecided ||
           change->second.state == SwitchState::kDone)) {
        broken(fmt::format("rank {} got ABORT of epoch {} that was decided", rank.id, epoch));
      }
      go_on();
      check_barrier();
      break;
  }
  reply(agent, {rank.id.value(), command.order, command.epoch, refusal.empty(), refusal, last_step_,
                0, 0.01});
}

}  // namespace tapas::daemon::sim
