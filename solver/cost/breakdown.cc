#include "solver/cost/breakdown.h"

#include <algorithm>

namespace tapas::solver {
namespace {

/// One microbatch on one stage, by what the time goes to.
struct StageParts {
  double forward = 0;
  double backward = 0;
  double recompute = 0;
  double recompute_comm = 0;
  double tp_comm = 0;  ///< recompute_comm included
  double sending = 0;  ///< keeps the stage busy, in cost models that say so
};

StageParts parts_of(PlanEvaluator& evaluator, const Plan& plan, std::uint32_t replica,
                    std::uint32_t stage, const Pipeline& pipeline, const ClusterState& state) {
  const LayerTable& table = evaluator.table(evaluator.sharding_of(plan, replica, stage));
  const LayerRange range = stage_layers(plan, replica, stage, table.layers());
  const std::vector<bool>& recomputed = plan.checkpoint_of(replica);
  const Position& position = plan.placement[replica][stage % plan.stages()];
  const double slow = evaluator.slowdown(state, position);
  const double inside = state.links(position.node).inside;
  const LayerTimes sum = table.sum(range).times;
  StageParts parts;
  parts.forward = sum.forward_s * slow;
  parts.backward = sum.backward_s * slow;
  for (std::uint32_t l = range.first; l < range.last; ++l) {
    if (recomputed[l]) {
      parts.recompute += table[l].times.forward_s * slow;
      parts.recompute_comm += table[l].times.forward_comm_s * inside;
    }
  }
  parts.tp_comm = (sum.forward_comm_s + sum.backward_comm_s) * inside + parts.recompute_comm;
  parts.sending = pipeline.forward_s[stage] + pipeline.backward_s[stage] - parts.forward -
                  parts.backward - parts.recompute - parts.tp_comm;
  return parts;
}

/// Splits each group's idle time before an action into the transfer that it waits for and the rest.
void add_idle(const Pipeline& pipeline, const std::vector<Action>& actions,
              std::vector<GroupSeconds>& groups) {
  std::vector<double> free(groups.size(), 0);
  for (const Action& action : actions) {
    const std::uint32_t g = action.stage % pipeline.groups();
    const double idle = action.start_s - free[g];
    free[g] = action.end_s;
    double delay = 0;
    if (action.forward) {
      delay = action.stage > 0 ? pipeline.forward_delay_s[action.stage - 1] : 0;
    } else if (action.stage + 1 < pipeline.stages()) {
      delay = pipeline.backward_delay_s[action.stage];
    }
    const double transfer = std::min(idle, delay);
    groups[g].pp_comm += transfer;
    groups[g].wait += idle - transfer;
  }
}

GroupBytes bytes_of(PlanEvaluator& evaluator, const Plan& plan, std::uint32_t replica,
                    std::uint32_t group) {
  const Job& job = evaluator.job();
  const MemoryRule rule = evaluator.rule_of(plan, replica, group);
  GroupBytes bytes;
  double params = 0;
  double transient = 0;
  for (std::uint32_t k = group; k < plan.pp_splits.size(); k += plan.stages()) {
    const LayerTable& table = evaluator.table(evaluator.sharding_of(plan, replica, k));
    const LayerRange range = stage_layers(plan, replica, k, table.layers());
    const LayerCost sum = table.sum(range);
    const double idle = stage_memory_bytes(table, rule, range, 0, plan.checkpoint_of(replica)) -
                        sum.params * rule.state_bytes_per_param;
    params += sum.params;
    if (idle >= transient) {
      transient = idle;
      bytes.scratch = std::min(sum.work_bytes, idle);
      bytes.recompute = idle - bytes.scratch;
    }
  }
  bytes.parameters = params * job.bytes_per_param;
  bytes.gradients = params * job.gradient_bytes_per_param;
  bytes.optimizer = params * rule.state_bytes_per_param - bytes.parameters - bytes.gradients;
  bytes.activations = evaluator.memory_bytes(plan, replica, group) -
                      params * rule.state_bytes_per_param - transient;
  bytes.capacity = rule.capacity_bytes;
  const double ratio = job.limits.memory_reserve_ratio;
  bytes.reserve = rule.capacity_bytes * ratio / (1 - ratio);
  return bytes;
}

}  // namespace

Breakdown break_down(const Job& job, const Plan& plan, const ClusterState& state) {
  PlanEvaluator evaluator(job);
  PipelineClock clock;
  Breakdown result;
  double synchronised = 0;
  double update = 0;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const Pipeline pipeline = evaluator.pipeline_of(plan, r, state);
    std::vector<GroupSeconds> groups(plan.stages());
    const double m = plan.microbatches[r];
    for (std::uint32_t k = 0; k < pipeline.stages(); ++k) {
      const StageParts parts = parts_of(evaluator, plan, r, k, pipeline, state);
      GroupSeconds& group = groups[k % plan.stages()];
      group.forward += m * parts.forward;
      group.backward += m * parts.backward;
      group.recompute += m * parts.recompute;
      group.tp_comm += m * parts.tp_comm;
      group.pp_comm += m * parts.sending;
    }
    add_idle(pipeline, clock.timeline(pipeline, plan.microbatches[r]), groups);
    const std::vector<GroupEnd> ends = evaluator.group_ends(plan, r, state);
    std::vector<GroupBytes> bytes;
    for (std::uint32_t g = 0; g < plan.stages(); ++g) {
      groups[g].dp_sync = ends[g].synchronised_s - ends[g].end_s;
      groups[g].update = ends[g].update_s;
      synchronised = std::max(synchronised, ends[g].synchronised_s);
      update = std::max(update, ends[g].update_s);
      bytes.push_back(bytes_of(evaluator, plan, r, g));
    }
    result.seconds.push_back(std::move(groups));
    result.bytes.push_back(std::move(bytes));
  }
  result.step_time_s = synchronised + update;
  // Then all wait for the last one to synchronise, and for the longest update.
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const std::vector<GroupEnd> ends = evaluator.group_ends(plan, r, state);
    for (std::uint32_t g = 0; g < plan.stages(); ++g) {
      result.seconds[r][g].wait +=
          synchronised - ends[g].synchronised_s + update - ends[g].update_s;
    }
  }
  return result;
}

ReplicaTimeline replica_timeline(const Job& job, const Plan& plan, std::uint32_t replica,
                                 const ClusterState& state) {
  PlanEvaluator evaluator(job);
  const Pipeline pipeline = evaluator.pipeline_of(plan, replica, state);
  ReplicaTimeline timeline;
  timeline.groups = plan.stages();
  timeline.microbatches = plan.microbatches[replica];
  timeline.actions = PipelineClock().timeline(pipeline, timeline.microbatches);
  for (std::uint32_t k = 0; k < pipeline.stages(); ++k) {
    const StageParts parts = parts_of(evaluator, plan, replica, k, pipeline, state);
    timeline.recompute_share.push_back((parts.recompute + parts.recompute_comm) /
                                       std::max(pipeline.backward_s[k], 1e-300));
  }
  timeline.ends = evaluator.group_ends(plan, replica, state);
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (const GroupEnd& end : evaluator.group_ends(plan, r, state)) {
      timeline.update_at_s = std::max(timeline.update_at_s, end.synchronised_s);
    }
  }
  timeline.step_time_s = evaluator.step_time_s(plan, state);
  return timeline;
}

}  // namespace tapas::solver
