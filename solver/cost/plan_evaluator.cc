#include "solver/cost/plan_evaluator.h"

#include "solver/cost/links.h"

#include <algorithm>
#include <utility>

namespace tapas::solver {

PlanEvaluator::PlanEvaluator(const Job& job)
    : job_(job), model_(make_cost_model(job)), layers_(job.graph.layer_count()) {
  std::uint32_t rank = 0;
  for (const Node& node : job.cluster.nodes) {
    first_rank_.push_back(rank);
    rank += job.cluster.node_types[node.type].devices;
  }
}

const LayerTable& PlanEvaluator::table(const Sharding& sharding) {
  auto& entry = tables_[sharding];
  if (!entry) {
    entry = std::make_unique<LayerTable>(job_, *model_, sharding);
  }
  return *entry;
}

Sharding PlanEvaluator::sharding_of(const Plan& plan, std::uint32_t replica,
                                    std::uint32_t stage) const {
  const Position& position = plan.placement[replica][stage];
  return {job_.cluster.nodes[position.node.value()].type,
          plan.tp_width[plan.splits_of(replica)[stage]], plan.sp_width > 1};
}

double PlanEvaluator::slowdown(const ClusterState& state, const Position& position) const {
  if (state.device_slowdown.empty()) {
    return 1;
  }
  double worst = 0;
  for (const std::uint16_t device : position.devices) {
    worst = std::max(worst, state.slowdown(RankId(first_rank_[position.node.value()] + device)));
  }
  return worst;
}

StageCompute PlanEvaluator::compute_of(const Plan& plan, std::uint32_t replica,
                                       std::uint32_t stage) {
  const LayerTable& costs = table(sharding_of(plan, replica, stage));
  const LayerRange range = stage_layers(plan, replica, stage, layers_);
  const LayerCost sum = costs.sum(range);
  StageCompute compute{sum.times.forward_s, sum.times.backward_s};
  for (std::uint32_t l = range.first; l < range.last; ++l) {
    if (plan.checkpoint[l]) {
      compute.backward_s += costs[l].times.forward_s;
    }
  }
  return compute;
}

Pipeline PlanEvaluator::pipeline_of(const Plan& plan, std::uint32_t replica,
                                    const ClusterState& state) {
  const std::uint32_t stages = plan.stages();
  Pipeline pipeline;
  pipeline.schedule = plan.schedule;
  pipeline.forward_s.reserve(stages);
  pipeline.backward_s.reserve(stages);
  double busy = 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const Position& position = plan.placement[replica][s];
    const LayerTable& costs = table(sharding_of(plan, replica, s));
    const LayerRange range = stage_layers(plan, replica, s, layers_);
    const double slow = slowdown(state, position);
    const StageCompute compute = compute_of(plan, replica, s);
    const LayerCost sum = costs.sum(range);
    double backward_comm = sum.times.backward_comm_s;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      if (plan.checkpoint[l]) {
        backward_comm += costs[l].times.forward_comm_s;
      }
    }
    if (s + 1 < stages) {
      const Position& next = plan.placement[replica][s + 1];
      const double bytes = costs.cut_bytes(range.last);
      const Sharding sharding = costs.sharding();
      const Hop there =
          model_->hop(link_between(job_.cluster, position, next), sharding, bytes, stages);
      const Hop back =
          model_->hop(link_between(job_.cluster, next, position), sharding, bytes, stages);
      pipeline.forward_delay_s.push_back(there.delay_s);
      pipeline.backward_delay_s.push_back(back.delay_s);
      busy = std::max(busy, there.busy_s);
    }
    pipeline.forward_s.push_back(compute.forward_s * slow + sum.times.forward_comm_s);
    pipeline.backward_s.push_back(compute.backward_s * slow + backward_comm);
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    pipeline.forward_s[s] += busy;
    pipeline.backward_s[s] += busy;
  }
  return pipeline;
}

std::size_t PlanEvaluator::class_of(Pipeline pipeline) {
  std::vector<double> key;
  key.reserve(4 * pipeline.forward_s.size() + 1);
  key.push_back(static_cast<double>(pipeline.schedule));
  for (const auto* part : {&pipeline.forward_s, &pipeline.backward_s, &pipeline.forward_delay_s,
                           &pipeline.backward_delay_s}) {
    key.insert(key.end(), part->begin(), part->end());
  }
  const auto [it, added] = class_ids_.try_emplace(std::move(key), classes_.size());
  if (added) {
    classes_.push_back({std::move(pipeline), {}});
  }
  return it->second;
}

double PlanEvaluator::class_time_s(std::size_t pipeline_class, std::uint32_t microbatches) {
  Class& entry = classes_[pipeline_class];
  const auto [it, added] = entry.time_s.try_emplace(microbatches, 0.0);
  if (added) {
    it->second = pipeline_time_s(entry.pipeline, microbatches);
  }
  return it->second;
}

double PlanEvaluator::tail_s(const Plan& plan) {
  const std::vector<Ring> rings = replica_rings(job_.cluster, plan);
  double worst = 0;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const Sharding sharding = sharding_of(plan, r, s);
      const StepTail tail = model_->step_tail(rings[s], sharding);
      const double params = table(sharding).sum(stage_layers(plan, r, s, layers_)).params;
      worst = std::max(worst, tail.fixed_s + tail.per_param_s * params);
    }
    if (plan.replica_splits.empty()) {
      break;
    }
  }
  return worst;
}

double PlanEvaluator::step_time_s(const Plan& plan, const ClusterState& state) {
  double slowest = 0;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    slowest = std::max(slowest,
                       class_time_s(class_of(pipeline_of(plan, r, state)), plan.microbatches[r]));
  }
  return slowest + tail_s(plan);
}

MemoryRule PlanEvaluator::rule_of(const Plan& plan, std::uint32_t replica,
                                  std::uint32_t stage) const {
  return memory_rule(job_, sharding_of(plan, replica, stage).node_type, plan.replicas());
}

double PlanEvaluator::memory_bytes(const Plan& plan, std::uint32_t replica, std::uint32_t stage) {
  return stage_memory_bytes(
      table(sharding_of(plan, replica, stage)), rule_of(plan, replica, stage),
      stage_layers(plan, replica, stage, layers_),
      in_flight(plan.schedule, plan.stages(), stage, plan.microbatches[replica]), plan.checkpoint);
}

}  // namespace tapas::solver
