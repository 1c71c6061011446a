#pragma once

#include "daemon/core/event.h"
#include "daemon/recording/event_fields.h"
#include "daemon/recording/writer.h"

#include <variant>
#include <vector>

/// The actions: written only, as a replay compares what it reads with what its core writes.
namespace tapas::daemon::recording {

template <typename V, Is<AnswerPrice> T>
void fields(V& visit, T& of) {
  auto& [answer, step_s, cost_s, loss_s, chosen, note] = of;
  visit({"answer", "step_s", "cost_s", "loss_s", "chosen", "note"}, answer, step_s, cost_s, loss_s,
        chosen, note);
}

inline void fields(Writer& visit, const Evidence& of) {
  std::visit([&](const auto& value) { visit.row(of.key, value); }, of.value);
}

template <typename V, Is<PlanRow> T>
void fields(V& visit, T& of) {
  auto& [job, plan, status, trigger, wall_ns] = of;
  visit({"job", "plan", "status", "trigger", "wall_ns"}, job, plan, status, trigger, wall_ns);
}

template <typename V, Is<DecisionRow> T>
void fields(V& visit, T& of) {
  auto& [job, decision, epoch, reason_code, sentence, evidence, wall_ns] = of;
  visit({"job", "decision", "epoch", "reason_code", "sentence", "evidence", "wall_ns"}, job,
        decision, epoch, reason_code, sentence, evidence, wall_ns);
}

template <typename V, Is<DecisionAmendment> T>
void fields(V& visit, T& of) {
  auto& [job, decision, evidence, wall_ns] = of;
  visit({"job", "decision", "evidence", "wall_ns"}, job, decision, evidence, wall_ns);
}

template <typename V, Is<EventRow> T>
void fields(V& visit, T& of) {
  auto& [job, kind, node, sentence, evidence, wall_ns] = of;
  visit({"job", "kind", "node", "sentence", "evidence", "wall_ns"}, job, kind, node, sentence,
        evidence, wall_ns);
}

template <typename V, Is<OperatorRow> T>
void fields(V& visit, T& of) {
  auto& [who, action, reason, outcome, wall_ns] = of;
  visit({"who", "action", "reason", "outcome", "wall_ns"}, who, action, reason, outcome, wall_ns);
}

template <typename V, Is<WelcomeMessage> T>
void fields(V& visit, T& of) {
  auto& [term, heartbeat_s] = of;
  visit({"term", "heartbeat_s"}, term, heartbeat_s);
}

template <typename V, Is<RejectMessage> T>
void fields(V& visit, T& of) {
  auto& [reason, retry_after_s] = of;
  visit({"reason", "retry_after_s"}, reason, retry_after_s);
}

template <typename V, Is<HeartbeatAckMessage> T>
void fields(V& visit, T& of) {
  auto& [term] = of;
  visit({"term"}, term);
}

/// A plan that was stored before; sent to every agent, so its epoch must do.
inline void fields(Writer& visit, const PlanMessage& of) {
  visit({"job", "term", "epoch", "active"}, of.job, of.term, of.plan->epoch, of.active);
}

template <typename V, Is<SwitchMessage> T>
void fields(V& visit, T& of) {
  auto& [order, job, term, from, to, at_step, reason] = of;
  visit({"order", "job", "term", "from", "to", "at_step", "reason"}, order, job, term, from, to,
        at_step, reason);
}

template <typename V, Is<SendToAgent> T>
void fields(V& visit, T& of) {
  auto& [node, message] = of;
  visit({"node", "message"}, node, message);
}

template <typename V, Is<RequestPlan> T>
void fields(V& visit, T& of) {
  auto& [job] = of;
  visit({"job"}, job);
}

template <typename V, Is<solver::NodeLinks> T>
void fields(V& visit, T& of) {
  auto& [send, receive, inside] = of;
  visit({"send", "receive", "inside"}, send, receive, inside);
}

template <typename V, Is<solver::PathSlowdown> T>
void fields(V& visit, T& of) {
  auto& [from, to, factor] = of;
  visit({"from", "to", "factor"}, from, to, factor);
}

template <typename V, Is<solver::ClusterState> T>
void fields(V& visit, T& of) {
  auto& [device_slowdown, drained, node_links, paths] = of;
  visit({"device_slowdown", "drained", "node_links", "paths"}, device_slowdown, drained, node_links,
        paths);
}

/// The plan is the running one.
inline void fields(Writer& visit, const solver::ReplanRequest& of) {
  const auto& [current, state, pinned, expected_episode_s, calibration] = of;
  visit({"epoch", "state", "pinned", "expected_episode_s", "calibration"}, current.epoch, state,
        pinned, expected_episode_s, calibration);
}

template <typename V, Is<RequestReplan> T>
void fields(V& visit, T& of) {
  auto& [job, request, problem] = of;
  visit({"job", "request", "problem"}, job, request, problem);
}

template <typename V, Is<StoreWrite> T>
void fields(V& visit, T& of) {
  auto& [write, rows] = of;
  visit({"write", "rows"}, write, rows);
}

template <typename V, Is<OperatorReply> T>
void fields(V& visit, T& of) {
  auto& [request, outcome, proposal] = of;
  visit({"request", "outcome", "proposal"}, request, outcome, proposal);
}

template <typename V, Is<RejectedInput> T>
void fields(V& visit, T& of) {
  auto& [node, reason, sentence] = of;
  visit({"node", "reason", "sentence"}, node, reason, sentence);
}

}  // namespace tapas::daemon::recording
