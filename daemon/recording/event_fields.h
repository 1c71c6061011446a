#pragma once

#include "daemon/core/event.h"
#include "daemon/recording/names.h"
#include "daemon/recording/restored_fields.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

/// The events, all fields of each.
namespace tapas::daemon::recording {

template <typename V, Is<Error> T>
void fields(V& visit, T& of) {
  auto& [code, message] = of;
  visit({"code", "message"}, code, message);
}

template <typename V, Is<RankAttachment> T>
void fields(V& visit, T& of) {
  auto& [rank, device_uuid, pid] = of;
  visit({"rank", "device_uuid", "pid"}, rank, device_uuid, pid);
}

template <typename V, Is<JobAttachment> T>
void fields(V& visit, T& of) {
  auto& [job, session, epoch, pending_epoch, ranks] = of;
  visit({"job", "session", "epoch", "pending_epoch", "ranks"}, job, Hex{session}, epoch,
        pending_epoch, ranks);
}

template <typename V, Is<AgentHello> T>
void fields(V& visit, T& of) {
  auto& [node, nonce, term, jobs] = of;
  visit({"node", "nonce", "term", "jobs"}, node, Hex{nonce}, term, jobs);
}

template <typename V, Is<AgentHeartbeat> T>
void fields(V& visit, T& of) {
  auto& [node, records_sent, records_dropped] = of;
  visit({"node", "records_sent", "records_dropped"}, node, records_sent, records_dropped);
}

template <typename V, Is<NodeFinding> T>
void fields(V& visit, T& of) {
  auto& [device, kind, text] = of;
  visit({"device", "kind", "text"}, device, kind, text);
}

template <typename V, Is<AgentFindings> T>
void fields(V& visit, T& of) {
  auto& [node, findings] = of;
  visit({"node", "findings"}, node, findings);
}

// Records are most of a recording: rows without names, and what the records of a node have in
// common is told once.

template <typename V, Is<StepSample> T>
void fields(V& visit, T& of) {
  auto& [job, session, node, rank, epoch, step, end_time_s, flags, microbatches, wall_s, forward_s,
         backward_s, optimizer_s, tp_collective_s, pp_wait_s, pp_transfer_s, dp_collective_s,
         input_wait_s, work_tokens] = of;
  visit.row(rank, step, end_time_s, flags, microbatches, Micros{wall_s}, Micros{forward_s},
            Micros{backward_s}, Micros{optimizer_s}, Micros{tp_collective_s}, Micros{pp_wait_s},
            Micros{pp_transfer_s}, Micros{dp_collective_s}, Micros{input_wait_s}, work_tokens);
}

/// Samples in a row from one session, node and epoch.
struct StepGroup {
  std::uint64_t job = 0;
  std::uint64_t session = 0;
  std::uint64_t node = 0;
  Epoch epoch;
  std::vector<StepSample> rows;
};

template <typename V, Is<StepGroup> T>
void fields(V& visit, T& of) {
  auto& [job, session, node, epoch, rows] = of;
  visit({"job", "session", "node", "epoch", "rows"}, Hex{job}, Hex{session}, Hex{node}, epoch,
        rows);
}

template <typename V, Is<LinkSample> T>
void fields(V& visit, T& of) {
  auto& [job, session, destination, rank, peer, end_time_s, bytes, transfer_s] = of;
  visit.row(Hex{job}, Hex{session}, Hex{destination}, rank, peer, end_time_s, bytes,
            Micros{transfer_s});
}

[[nodiscard]] inline std::vector<StepGroup> groups_of(const std::vector<StepSample>& samples) {
  std::vector<StepGroup> groups;
  for (const StepSample& sample : samples) {
    const auto source = std::tie(sample.job, sample.session, sample.node, sample.epoch);
    if (groups.empty() || source != std::tie(groups.back().job, groups.back().session,
                                             groups.back().node, groups.back().epoch)) {
      groups.push_back({sample.job, sample.session, sample.node, sample.epoch, {}});
    }
    groups.back().rows.push_back(sample);
  }
  return groups;
}

[[nodiscard]] inline std::vector<StepSample> samples_of(std::vector<StepGroup> groups) {
  std::vector<StepSample> samples;
  for (StepGroup& group : groups) {
    for (StepSample& sample : group.rows) {
      sample.job = group.job;
      sample.session = group.session;
      sample.node = group.node;
      sample.epoch = group.epoch;
      samples.push_back(sample);
    }
  }
  return samples;
}

template <typename V, Is<StepBatch> T>
void fields(V& visit, T& of) {
  auto& [node, samples, links] = of;
  std::vector<StepGroup> steps = groups_of(samples);
  visit({"node", "steps", "links"}, node, steps, links);
  if constexpr (!std::is_const_v<T>) {
    samples = samples_of(std::move(steps));
  }
}

template <typename V, Is<solver::Position> T>
void fields(V& visit, T& of) {
  auto& [node, devices] = of;
  visit({"node", "devices"}, node, devices);
}

template <typename V, Is<solver::LayerMove> T>
void fields(V& visit, T& of) {
  auto& [replica, layer, from_stage, to_stage, from, to, bytes] = of;
  visit({"replica", "layer", "from_stage", "to_stage", "from", "to", "bytes"}, replica, layer,
        from_stage, to_stage, from, to, bytes);
}

template <typename V, Is<solver::TransferTime> T>
void fields(V& visit, T& of) {
  auto& [start_s, end_s] = of;
  visit({"start_s", "end_s"}, start_s, end_s);
}

template <typename V, Is<solver::Tried> T>
void fields(V& visit, T& of) {
  auto& [what, step_s, evaluations, elapsed_s] = of;
  visit({"what", "step_s", "evaluations", "elapsed_s"}, what, step_s, evaluations, elapsed_s);
}

template <typename V, Is<solver::Proposal> T>
void fields(V& visit, T& of) {
  auto& [improves, plan, moves, transfers, stages_touched, step_before_s, step_after_s,
         lower_bound_s, switch_s, net_gain_s, plans_evaluated, tried, stopped, change, reason] = of;
  visit({"improves", "plan", "moves", "transfers", "stages_touched", "step_before_s",
         "step_after_s", "lower_bound_s", "switch_s", "net_gain_s", "plans_evaluated", "tried",
         "stopped", "change", "reason"},
        improves, plan, moves, transfers, stages_touched, step_before_s, step_after_s,
        lower_bound_s, switch_s, net_gain_s, plans_evaluated, tried, stopped, change, reason);
}

template <typename V, Is<AgentVote> T>
void fields(V& visit, T& of) {
  auto& [node, job, epoch, phase, ok, reason, step, bytes, seconds] = of;
  visit({"node", "job", "epoch", "phase", "ok", "reason", "step", "bytes", "seconds"}, node, job,
        epoch, phase, ok, reason, step, bytes, seconds);
}

template <typename V, Is<PlanSolved> T>
void fields(V& visit, T& of) {
  auto& [job, plan, summary, solve_s] = of;
  visit({"job", "plan", "summary", "solve_s"}, job, plan, summary, solve_s);
}

template <typename V, Is<ReplanSolved> T>
void fields(V& visit, T& of) {
  auto& [job, request, proposal, solve_s, lesser] = of;
  visit({"job", "request", "proposal", "solve_s", "lesser"}, job, request, proposal, solve_s,
        lesser);
}

template <typename V, Is<StoreDone> T>
void fields(V& visit, T& of) {
  auto& [write, outcome] = of;
  visit({"write", "outcome"}, write, outcome);
}

template <typename V, Is<Drain> T>
void fields(V& visit, T& of) {
  auto& [node, reason] = of;
  visit({"node", "reason"}, node, reason);
}

template <typename V, Is<Undrain> T>
void fields(V& visit, T& of) {
  auto& [node] = of;
  visit({"node"}, node);
}

template <typename V, Is<Pin> T>
void fields(V& visit, T& of) {
  auto& [node, reason] = of;
  visit({"node", "reason"}, node, reason);
}

template <typename V, Is<Unpin> T>
void fields(V& visit, T& of) {
  auto& [node] = of;
  visit({"node"}, node);
}

template <typename V, Is<Replan> T>
void fields(V& visit, T& of) {
  auto& [job, dry_run] = of;
  visit({"job", "dry_run"}, job, dry_run);
}

template <typename V, Is<SetAuto> T>
void fields(V& visit, T& of) {
  auto& [on, reason] = of;
  visit({"on", "reason"}, on, reason);
}

template <typename V, Is<OperatorCommand> T>
void fields(V& visit, T& of) {
  auto& [request, who, verb] = of;
  visit({"request", "who", "verb"}, request, who, verb);
}

template <typename V, Is<Reconfigured> T>
void fields(V& visit, T& of) {
  auto& [config, changes] = of;
  visit({"config", "changes"}, config, changes);
}

template <typename V, Is<Tick> T>
void fields(V& visit, T& /*of*/) {
  visit.nothing();
}

}  // namespace tapas::daemon::recording
