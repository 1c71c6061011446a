#include "daemon/core/core.h"

#include "daemon/core/job_loop.h"
#include "daemon/core/outbox.h"
#include "daemon/core/registry.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <variant>

namespace tapas::daemon {
namespace {

constexpr std::size_t kMaxReasonBytes = 512;

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

struct Core::Impl {
  /// A drain that is durable, while the jobs look for plans without the node.
  struct PendingDrain {
    std::string node;
    std::string reason;
    std::size_t waiting = 0;
    std::vector<std::string> sentences;
  };

  Impl(CoreConfig config_in, std::vector<std::shared_ptr<const solver::Job>> jobs_in,
       Restored restored)
      : config(config_in), term(restored.term) {
    for (auto& job : jobs_in) {
      const std::string name = job->name;
      auto found = restored.jobs.find(name);
      jobs.try_emplace(name, std::move(job),
                       found == restored.jobs.end() ? RestoredJob{} : std::move(found->second));
      job_by_hash[name_hash(name)] = name;
    }
    for (NodeStateRow& row : restored.nodes) {
      const std::string node = row.node;
      nodes[node] = std::move(row);
    }
    auto_mode = restored.paused ? AutoMode{false, *restored.paused} : configured_auto();
  }

  [[nodiscard]] AutoMode configured_auto() const {
    return {config.auto_replan, config.auto_replan ? "auto_replan is on in the configuration"
                                                   : "auto_replan is off in the configuration"};
  }

  std::vector<Action> apply(const Event& event, const Now& now) {
    Outbox out(now, last_write);
    LoopContext context{config,       registry, nodes,         auto_mode, term,
                        last_request, replies,  drain_answers, out};
    if (!std::exchange(started, true)) {
      for (auto& [name, loop] : jobs) {
        loop.start(context);
      }
    }
    std::visit([&](const auto& typed) { on(context, typed); }, event);
    finish_drains(context);
    std::vector<Action> actions = out.take();
    count_events(actions);
    return actions;
  }

  void count_events(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* write = std::get_if<StoreWrite>(&action)) {
        for (const StoreRow& row : write->rows) {
          if (const auto* event = std::get_if<EventRow>(&row)) {
            ++events[event->job][event->kind];
          }
        }
      }
    }
  }

  void reject(LoopContext& context, const std::string& node, const std::string& reason,
              std::string sentence) {
    ++rejected[reason];
    context.out.add(RejectedInput{node, reason, std::move(sentence)});
  }

  [[nodiscard]] bool in_some_cluster(const std::string& node) const {
    for (const auto& [name, loop] : jobs) {
      if (loop.job()->cluster.find(node)) {
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::string job_names() const {
    std::vector<std::string> names;
    for (const auto& [name, loop] : jobs) {
      names.push_back(name);
    }
    return listed(names);
  }

  // ------------------------------------------------------------ agents

  void on(LoopContext& context, const AgentHello& hello) {
    if (hello.term > term) {
      context.out.send(
          hello.node,
          RejectMessage{fmt::format("this daemon is of term {}, you have seen term {}: a newer "
                                    "daemon leads, or the state directory of this one is an old "
                                    "copy; stop the older daemon",
                                    term, hello.term),
                        30.0});
      reject(context, hello.node, "newer_term",
             fmt::format("{} has seen term {}, this daemon is of term {}", hello.node, hello.term,
                         term));
      return;
    }
    AgentHello accepted = hello;
    std::erase_if(accepted.jobs, [&](const JobAttachment& attachment) {
      return !acceptable(context, hello.node, attachment);
    });
    const Registry::Arrival arrival = registry.hello(accepted, context.out.now());
    context.out.send(hello.node, WelcomeMessage{term, config.heartbeat_s});
    if (arrival.fresh || arrival.restarted) {
      context.out.event(
          "", "agent_connected", hello.node,
          in_some_cluster(hello.node)
              ? fmt::format("agent of {} {}", hello.node,
                            arrival.restarted ? "was restarted" : "is connected")
              : fmt::format("agent of {} is connected but in no job's cluster: parked",
                            hello.node));
    }
    for (auto& [name, loop] : jobs) {
      if (loop.job()->cluster.find(hello.node)) {
        loop.hello(context, accepted, arrival);
      }
    }
  }

  bool acceptable(LoopContext& context, const std::string& node, const JobAttachment& attachment) {
    const auto loop = jobs.find(attachment.job);
    if (loop == jobs.end()) {
      reject(context, node, "unknown_job",
             fmt::format("{} runs job {}, which is not configured here (configured: {})", node,
                         attachment.job, job_names()));
      return false;
    }
    const solver::Cluster& cluster = loop->second.job()->cluster;
    for (const RankAttachment& rank : attachment.ranks) {
      if (rank.rank.value() >= cluster.device_count() ||
          cluster.nodes[cluster.node_of(rank.rank).value()].name != node) {
        reject(context, node, "foreign_rank",
               fmt::format("{} attaches rank {} of job {}, which is not a device of that node",
                           node, rank.rank, attachment.job));
        return false;
      }
    }
    return true;
  }

  void on(LoopContext& context, const AgentHeartbeat& heartbeat) {
    if (!registry.heard(heartbeat.node, context.out.now())) {
      ask_for_hello(context, heartbeat.node);
      return;
    }
    registry.count(heartbeat);
    context.out.send(heartbeat.node, HeartbeatAckMessage{term});
  }

  void on(LoopContext& context, const AgentFindings& findings) {
    if (!registry.heard(findings.node, context.out.now())) {
      ask_for_hello(context, findings.node);
      return;
    }
    registry.find(findings);
  }

  static void tell_findings(LoopContext& context) {
    for (const FindingNews& news : context.registry.take_finding_news(context.out.now())) {
      for (const NodeFinding& finding : news.begun) {
        context.out.event("", "finding", news.node, fmt::format("{}: {}", news.node, finding.text),
                          {{"device", finding.device}, {"kind", finding.kind}});
      }
      for (const NodeFinding& finding : news.over) {
        context.out.event(
            "", "finding_over", news.node,
            fmt::format("{}: {} is over at {}", news.node, finding.kind, finding.device),
            {{"device", finding.device}, {"kind", finding.kind}});
      }
    }
  }

  void ask_for_hello(LoopContext& context, const std::string& node) {
    context.out.send(
        node, RejectMessage{"this daemon does not know you yet; say HELLO", config.heartbeat_s});
    ++rejected["no_hello"];
  }

  void on(LoopContext& context, const StepBatch& batch) {
    if (!registry.heard(batch.node, context.out.now())) {
      rejected["no_hello"] += batch.samples.size() + batch.links.size();
      return;
    }
    std::map<std::string, JobLoop::Rejection> refused;
    std::map<std::uint64_t, JobLoop*> touched;
    const auto loop_of = [&](std::uint64_t job) {
      const auto [found, added] = touched.try_emplace(job, nullptr);
      if (added) {
        const auto name = job_by_hash.find(job);
        found->second = name == job_by_hash.end() ? nullptr : &jobs.at(name->second);
      }
      return found->second;
    };
    const auto take = [&](const auto& sample) {
      JobLoop* loop = loop_of(sample.job);
      auto rejection =
          loop != nullptr
              ? loop->sample(context, batch.node, sample)
              : JobLoop::Rejection{"unknown_job",
                                   fmt::format("{}: record of a job with hash {:016x}, which is "
                                               "not configured here (configured: {})",
                                               batch.node, sample.job, job_names())};
      if (rejection) {
        ++rejected[rejection->reason];
        if (!rejection->sentence.empty()) {
          refused.try_emplace(rejection->reason, std::move(*rejection));
        }
      }
    };
    std::for_each(batch.samples.begin(), batch.samples.end(), take);
    std::for_each(batch.links.begin(), batch.links.end(), take);
    for (auto& [reason, rejection] : refused) {
      context.out.add(RejectedInput{batch.node, reason, std::move(rejection.sentence)});
    }
    for (const auto& [hash, loop] : touched) {
      if (loop != nullptr) {
        loop->judge(context);
      }
    }
  }

  void on(LoopContext& context, const AgentVote& vote) {
    if (!registry.heard(vote.node, context.out.now())) {
      ask_for_hello(context, vote.node);
      return;
    }
    const auto loop = jobs.find(vote.job);
    if (loop == jobs.end()) {
      reject(
          context, vote.node, "unknown_job",
          fmt::format("{} votes about job {}, which is not configured here", vote.node, vote.job));
    } else if (!loop->second.vote(context, vote)) {
      ++rejected["stale_vote"];
    }
  }

  void on(LoopContext& context, const Tick& /*tick*/) {
    for (const std::string& node : registry.expire(config.agent_lost_s, context.out.now())) {
      context.out.event("", "agent_lost", node,
                        fmt::format("agent of {} is lost: silent for {:.0f} s; its ranks may well "
                                    "train on",
                                    node, config.agent_lost_s));
      for (auto& [name, loop] : jobs) {
        loop.agent_lost(context, node);
      }
    }
    tell_findings(context);
    for (auto& [name, loop] : jobs) {
      loop.tick(context);
    }
  }

  // ------------------------------------------------------------ solver and store

  void on(LoopContext& context, const PlanSolved& solved) {
    if (const auto loop = jobs.find(solved.job); loop != jobs.end()) {
      loop->second.plan_solved(context, solved);
    }
  }
  void on(LoopContext& context, const ReplanSolved& solved) {
    if (const auto loop = jobs.find(solved.job); loop != jobs.end()) {
      loop->second.replan_solved(context, solved);
    }
  }

  void on(LoopContext& context, const StoreDone& done) {
    if (!done.outcome && auto_mode.on) {
      auto_mode = {false, "the store failed: " + done.outcome.error().message};
      context.out.event("", "store_failed", "",
                        auto_mode.reason +
                            "; no plan changes by itself until an operator turns "
                            "automatic replanning on again");
    }
    for (auto& [name, loop] : jobs) {
      loop.stored(context, done);
    }
    if (auto reply = replies.extract(done.write)) {
      if (!done.outcome) {
        reply.mapped().outcome = fail_in("not done, the store failed", done.outcome.error());
      }
      context.out.add(std::move(reply.mapped()));
    }
    if (auto command = pending_commands.extract(done.write)) {
      if (!done.outcome) {
        context.out.add(OperatorReply{command.mapped().request,
                                      fail_in("not done, the store failed", done.outcome.error()),
                                      nullptr});
      } else {
        std::visit([&](const auto& verb) { carry_out(context, command.mapped(), verb); },
                   command.mapped().verb);
      }
    }
  }

  // ------------------------------------------------------------ operator

  void on(LoopContext& context, const Reconfigured& event) {
    const bool auto_changed = event.config.auto_replan != config.auto_replan;
    config = event.config;
    if (auto_changed) {
      auto_mode = configured_auto();
    }
    context.out.event("", "config", "",
                      event.changes.empty() ? "configuration read again: nothing has changed"
                                            : "configuration read again: " + event.changes);
  }

  void on(LoopContext& context, const OperatorCommand& command) {
    if (const Result<void> valid = validate(command); !valid) {
      context.out.add(OperatorReply{command.request, tl::unexpected(valid.error()), nullptr});
      return;
    }
    if (const auto* replan = std::get_if<Replan>(&command.verb)) {
      jobs.at(replan->job).operator_replan(context, command, replan->dry_run);
      return;
    }
    // Durable before it takes effect, and before the operator hears of it.
    pending_commands[context.out.store(rows_of(command))] = command;
  }

  [[nodiscard]] Result<void> validate(const OperatorCommand& command) const {
    if (const auto* replan = std::get_if<Replan>(&command.verb)) {
      if (!jobs.contains(replan->job)) {
        return fail(ErrorCode::kNotFound, "no job \"{}\" here; configured: {}", replan->job,
                    job_names());
      }
      return {};
    }
    const NodeOrder order = node_order(command);
    if (order.node == nullptr) {
      return {};
    }
    if (!in_some_cluster(*order.node)) {
      return fail(ErrorCode::kNotFound,
                  "no node \"{}\" in the cluster of any job ({}); `tapasctl status` lists them",
                  *order.node, job_names());
    }
    if (order.reason != nullptr &&
        (order.reason->empty() || order.reason->size() > kMaxReasonBytes)) {
      return fail(ErrorCode::kInvalid, "a {} needs a reason of 1 to {} bytes", order.verb,
                  kMaxReasonBytes);
    }
    for (const auto& [write, pending] : pending_commands) {
      // Each writes the node's whole state, made from the one before.
      if (const NodeOrder other = node_order(pending);
          other.node != nullptr && *other.node == *order.node) {
        return fail(ErrorCode::kConflict, "a {} of node {} by {} is being stored; try again",
                    other.verb, *order.node, pending.who);
      }
    }
    const NodeStateRow state = state_of(*order.node);
    if (std::holds_alternative<Undrain>(command.verb) && !state.drained) {
      return fail(ErrorCode::kConflict, "node {} is not drained", state.node);
    }
    if (std::holds_alternative<Unpin>(command.verb) && !state.pinned) {
      return fail(ErrorCode::kConflict, "node {} is not pinned", state.node);
    }
    if (std::holds_alternative<Drain>(command.verb) && state.pinned) {
      return fail(ErrorCode::kConflict, "node {} is pinned ({}): unpin it first", state.node,
                  state.pin_reason);
    }
    if (std::holds_alternative<Pin>(command.verb) && state.drained) {
      return fail(ErrorCode::kConflict, "node {} is drained ({}): undrain it first", state.node,
                  state.reason);
    }
    return {};
  }

  /// What the verbs about one node have in common; no node for the others.
  struct NodeOrder {
    std::string_view verb;
    const std::string* node = nullptr;
    const std::string* reason = nullptr;
  };
  [[nodiscard]] static NodeOrder node_order(const OperatorCommand& command) {
    if (const auto* drain = std::get_if<Drain>(&command.verb)) {
      return {"drain", &drain->node, &drain->reason};
    }
    if (const auto* undrain = std::get_if<Undrain>(&command.verb)) {
      return {"undrain", &undrain->node, nullptr};
    }
    if (const auto* pin = std::get_if<Pin>(&command.verb)) {
      return {"pin", &pin->node, &pin->reason};
    }
    if (const auto* unpin = std::get_if<Unpin>(&command.verb)) {
      return {"unpin", &unpin->node, nullptr};
    }
    return {};
  }
  [[nodiscard]] NodeStateRow state_of(const std::string& node) const {
    const auto found = nodes.find(node);
    return found == nodes.end() ? NodeStateRow{node, false, "", 0} : found->second;
  }
  /// The node's state once the command is carried out.
  [[nodiscard]] NodeStateRow state_after(const OperatorCommand& command,
                                         const std::string& node) const {
    NodeStateRow state = state_of(node);
    state.wall_ns = 0;
    if (const auto* drain = std::get_if<Drain>(&command.verb)) {
      state.drained = true;
      state.reason = drain->reason;
    } else if (std::holds_alternative<Undrain>(command.verb)) {
      state.drained = false;
      state.reason.clear();
    } else if (const auto* pin = std::get_if<Pin>(&command.verb)) {
      state.pinned = true;
      state.pin_reason = pin->reason;
    } else {
      state.pinned = false;
      state.pin_reason.clear();
    }
    return state;
  }

  [[nodiscard]] std::vector<StoreRow> rows_of(const OperatorCommand& command) const {
    std::vector<StoreRow> rows;
    OperatorRow action{command.who, "", "", "accepted", 0};
    if (const NodeOrder order = node_order(command); order.node != nullptr) {
      rows.emplace_back(state_after(command, *order.node));
      action.action = fmt::format("node {} {}", order.verb, *order.node);
      action.reason = order.reason == nullptr ? "" : *order.reason;
    } else if (const auto* set_auto = std::get_if<SetAuto>(&command.verb)) {
      action.action = set_auto->on ? "auto on" : "auto off";
      action.reason = set_auto->reason;
    }
    rows.emplace_back(std::move(action));
    return rows;
  }

  void carry_out(LoopContext& context, const OperatorCommand& command, const Drain& drain) {
    nodes[drain.node] = state_after(command, drain.node);
    context.out.event("", "operator", drain.node,
                      fmt::format("{} drained node {}: {}", command.who, drain.node, drain.reason));
    PendingDrain& pending = drains[command.request];
    pending.node = drain.node;
    for (auto& [name, loop] : jobs) {
      if (!loop.job()->cluster.find(drain.node)) {
        continue;
      }
      if (auto sentence = loop.drain(context, command.request, drain.node)) {
        pending.sentences.push_back(std::move(*sentence));
      } else {
        ++pending.waiting;
      }
    }
  }

  void carry_out(LoopContext& context, const OperatorCommand& command, const Undrain& undrain) {
    nodes[undrain.node] = state_after(command, undrain.node);
    const std::string sentence = fmt::format("node {} may be used again", undrain.node);
    context.out.event("", "operator", undrain.node,
                      fmt::format("{} ended the drain of {}", command.who, undrain.node));
    context.out.add(OperatorReply{command.request, sentence, nullptr});
  }

  void carry_out(LoopContext& context, const OperatorCommand& command, const Pin& pin) {
    nodes[pin.node] = state_after(command, pin.node);
    context.out.event("", "operator", pin.node,
                      fmt::format("{} pinned node {}: {}", command.who, pin.node, pin.reason));
    context.out.add(OperatorReply{
        command.request,
        fmt::format("node {} is pinned: its stages and layers stay as they are", pin.node),
        nullptr});
  }

  void carry_out(LoopContext& context, const OperatorCommand& command, const Unpin& unpin) {
    nodes[unpin.node] = state_after(command, unpin.node);
    context.out.event("", "operator", unpin.node,
                      fmt::format("{} unpinned node {}", command.who, unpin.node));
    context.out.add(OperatorReply{
        command.request, fmt::format("node {} is not pinned any more", unpin.node), nullptr});
  }

  void carry_out(LoopContext& context, const OperatorCommand& command, const SetAuto& set_auto) {
    auto_mode.on = set_auto.on;
    auto_mode.reason = auto_reason(set_auto.on, command.who, set_auto.reason);
    context.out.event("", "operator", "", "automatic replanning " + auto_mode.reason);
    context.out.add(
        OperatorReply{command.request, "automatic replanning is " + auto_mode.reason, nullptr});
  }
  void carry_out(LoopContext& /*context*/, const OperatorCommand& /*command*/,
                 const Replan& /*replan*/) {}

  void finish_drains(LoopContext& context) {
    for (auto& [request, sentence] : std::exchange(drain_answers, {})) {
      if (const auto found = drains.find(request); found != drains.end()) {
        found->second.sentences.push_back(std::move(sentence));
        --found->second.waiting;
      }
    }
    std::erase_if(drains, [&](auto& entry) {
      if (entry.second.waiting > 0) {
        return false;
      }
      context.out.add(
          OperatorReply{entry.first,
                        fmt::format("node {} is drained and gets no new work: {}",
                                    entry.second.node, fmt::join(entry.second.sentences, "; ")),
                        nullptr});
      return true;
    });
  }

  CoreConfig config;
  const Term term;
  bool started = false;
  std::map<std::string, JobLoop> jobs;
  std::map<std::uint64_t, std::string> job_by_hash;
  std::map<std::string, NodeStateRow> nodes;
  AutoMode auto_mode;
  Registry registry;
  std::map<std::string, std::uint64_t> rejected;
  std::map<std::string, std::map<std::string, std::uint64_t>> events;
  std::uint64_t last_write = 0;
  std::uint64_t last_request = 0;
  std::map<std::uint64_t, OperatorReply> replies;             ///< by write
  std::map<std::uint64_t, OperatorCommand> pending_commands;  ///< by write
  std::map<std::uint64_t, PendingDrain> drains;               ///< by request
  std::vector<std::pair<std::uint64_t, std::string>> drain_answers;
};

std::string auto_reason(bool on, const std::string& who, const std::string& reason) {
  return fmt::format("{} by {}{}", on ? "on" : "off", who, reason.empty() ? "" : ": " + reason);
}

Core::Core(CoreConfig config, std::vector<std::shared_ptr<const solver::Job>> jobs,
           Restored restored)
    : impl_(std::make_unique<Impl>(config, std::move(jobs), std::move(restored))) {}

Core::~Core() = default;

std::vector<Action> Core::apply(const Event& event, const Now& now) {
  return impl_->apply(event, now);
}

StatusView Core::status(const Now& now) const {
  StatusView out;
  out.term = impl_->term;
  out.auto_replan = impl_->auto_mode.on;
  out.auto_reason = impl_->auto_mode.reason;
  out.rejected = impl_->rejected;
  out.events = impl_->events;
  std::map<std::string, AgentView> agents;
  for (const auto& [name, loop] : impl_->jobs) {
    out.jobs.push_back(loop.view(impl_->registry));
    for (const solver::Node& node : loop.job()->cluster.nodes) {
      AgentView& view = agents[node.name];
      view.slowdown = std::max(view.slowdown, loop.slowdown(node.name));
      view.clock_off_s = loop.clock_off_s(node.name);
      view.quarantine_s = std::max(view.quarantine_s, loop.resting_s(impl_->config, node.name));
    }
  }
  for (const auto& [node, agent] : impl_->registry.agents()) {
    AgentView& view = agents[node];
    view.connected = agent.connected;
    view.silent_s = silence_s(agent, now);
    view.records = agent.records;
    view.records_dropped = agent.records_dropped;
    view.findings = agent.findings;
  }
  for (auto& [node, view] : agents) {
    view.node = node;
    if (const auto state = impl_->nodes.find(node); state != impl_->nodes.end()) {
      view.drained = state->second.drained;
      view.drain_reason = state->second.reason;
      view.pinned = state->second.pinned;
      view.pin_reason = state->second.pin_reason;
    }
    out.agents.push_back(std::move(view));
  }
  return out;
}

std::shared_ptr<const solver::Job> Core::job(const std::string& name) const {
  const auto found = impl_->jobs.find(name);
  return found == impl_->jobs.end() ? nullptr : found->second.job();
}

std::shared_ptr<const solver::Plan> Core::plan(const std::string& job) const {
  const auto found = impl_->jobs.find(job);
  return found == impl_->jobs.end() ? nullptr : found->second.plan();
}

std::vector<DecisionRow> Core::decisions(const std::string& job) const {
  const auto found = impl_->jobs.find(job);
  if (found == impl_->jobs.end()) {
    return {};
  }
  return {found->second.decisions().begin(), found->second.decisions().end()};
}

}  // namespace tapas::daemon
