#include "solver/cost/plan_evaluator.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace tapas::solver {
namespace {

double layer_backward_s(const LayerCost& cost, bool recomputed, double slowdown, double inside) {
  const LayerTimes& t = cost.times;
  return (t.backward_s + (recomputed ? t.forward_s : 0)) * slowdown +
         (t.backward_comm_s + (recomputed ? t.forward_comm_s : 0)) * inside;
}

}  // namespace

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
  const Position& position = plan.placement[replica][stage % plan.stages()];
  return {job_.cluster.nodes[position.node.value()].type,
          static_cast<std::uint16_t>(position.devices.size()), plan.sp_width > 1};
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
                                       std::uint32_t group) {
  const std::vector<bool>& recomputed = plan.checkpoint_of(replica);
  StageCompute compute;
  for (std::uint32_t k = group; k < plan.pp_splits.size(); k += plan.stages()) {
    const LayerTable& costs = table(sharding_of(plan, replica, k));
    const LayerRange range = stage_layers(plan, replica, k, layers_);
    const LayerCost sum = costs.sum(range);
    compute.forward_s += sum.times.forward_s;
    compute.backward_s += sum.times.backward_s;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      compute.backward_s += recomputed[l] ? costs[l].times.forward_s : 0;
    }
  }
  return compute;
}

Pipeline PlanEvaluator::pipeline_of(const Plan& plan, std::uint32_t replica,
                                    const ClusterState& state) {
  const std::uint32_t groups = plan.stages();
  const auto stages = static_cast<std::uint32_t>(plan.pp_splits.size());
  const std::vector<bool>& recomputed = plan.checkpoint_of(replica);
  Pipeline pipeline;
  pipeline.schedule = plan.schedule;
  pipeline.chunks = plan.interleave;
  pipeline.forward_s.reserve(stages);
  pipeline.backward_s.reserve(stages);
  double busy = 0;
  for (std::uint32_t k = 0; k < stages; ++k) {
    const Position& position = plan.placement[replica][k % groups];
    const LayerTable& costs = table(sharding_of(plan, replica, k));
    const LayerRange range = stage_layers(plan, replica, k, layers_);
    const double slow = slowdown(state, position);
    const double inside = state.links(position.node).inside;
    const LayerCost sum = costs.sum(range);
    double forward = sum.times.forward_s;
    double backward = sum.times.backward_s;
    double backward_comm = sum.times.backward_comm_s;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      if (recomputed[l]) {
        backward += costs[l].times.forward_s;
        backward_comm += costs[l].times.forward_comm_s;
      }
    }
    if (k + 1 < stages) {
      const Position& next = plan.placement[replica][(k + 1) % groups];
      const double bytes = costs.cut_bytes(range.last);
      // Each device of the narrower group sends or takes its share.
      Sharding sharding = costs.sharding();
      sharding.width = std::min(sharding.width, static_cast<std::uint16_t>(next.devices.size()));
      const Hop there =
          model_->hop(link_between(job_.cluster, position, next, state), sharding, bytes, groups);
      const Hop back =
          model_->hop(link_between(job_.cluster, next, position, state), sharding, bytes, groups);
      pipeline.forward_delay_s.push_back(there.delay_s);
      pipeline.backward_delay_s.push_back(back.delay_s);
      busy = std::max(busy, there.busy_s);
    }
    pipeline.forward_s.push_back(forward * slow + sum.times.forward_comm_s * inside);
    pipeline.backward_s.push_back(backward * slow + backward_comm * inside);
  }
  for (std::uint32_t k = 0; k < stages; ++k) {
    pipeline.forward_s[k] += busy;
    pipeline.backward_s[k] += busy;
  }
  return pipeline;
}

std::size_t PlanEvaluator::class_of(Pipeline pipeline) {
  std::vector<double> key;
  key.reserve(4 * pipeline.forward_s.size() + 2);
  key.push_back(static_cast<double>(pipeline.schedule));
  key.push_back(pipeline.chunks);
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

const std::vector<double>& PlanEvaluator::class_ends_s(std::size_t pipeline_class,
                                                       std::uint32_t microbatches) {
  Class& entry = classes_[pipeline_class];
  const auto [it, added] = entry.ends_s.try_emplace(microbatches);
  if (added) {
    const std::span<const double> ends = clock_.ends_s(entry.pipeline, microbatches);
    it->second.assign(ends.begin(), ends.end());
  }
  return it->second;
}

double PlanEvaluator::class_time_s(std::size_t pipeline_class, std::uint32_t microbatches) {
  const std::vector<double>& ends = class_ends_s(pipeline_class, microbatches);
  return *std::max_element(ends.begin(), ends.end());
}

bool PlanEvaluator::tail_as_first(const Plan& plan, std::uint32_t replica,
                                  std::uint32_t group) const {
  return replica == 0 ||
         (sharding_of(plan, replica, group) == sharding_of(plan, 0, group) &&
          (plan.replica_splits.empty() || plan.splits_of(replica) == plan.splits_of(0)));
}

PlanEvaluator::Tail PlanEvaluator::tail_of(const Plan& plan, std::uint32_t replica,
                                           std::uint32_t group, const Ring& ring) {
  Tail tail;
  for (std::uint32_t k = group; k < plan.pp_splits.size(); k += plan.stages()) {
    const Sharding sharding = sharding_of(plan, replica, k);
    tail.tail = model_->step_tail(ring, sharding);
    tail.params += table(sharding).sum(stage_layers(plan, replica, k, layers_)).params;
  }
  return tail;
}

double PlanEvaluator::synchronised_s(const Plan& plan, std::uint32_t replica, std::uint32_t group,
                                     const Tail& tail, const std::vector<double>& ends_s,
                                     const ClusterState& state) {
  const auto stages = static_cast<std::uint32_t>(plan.pp_splits.size());
  if (!job_.overlap_gradients) {
    double end = 0;
    for (std::uint32_t k = group; k < stages; k += plan.stages()) {
      end = std::max(end, ends_s[k]);
    }
    return end + tail.tail.sync_s(tail.params);
  }
  // Backward goes from the last layer to the first; each layer's gradients queue for the ring when
  // they are ready.
  const std::vector<bool>& recomputed = plan.checkpoint_of(replica);
  const Position& position = plan.placement[replica][group];
  const double slow = slowdown(state, position);
  const double inside = state.links(position.node).inside;
  double done = 0;
  for (std::uint32_t k = group + (plan.interleave - 1) * plan.stages();; k -= plan.stages()) {
    const LayerTable& costs = table(sharding_of(plan, replica, k));
    const LayerRange range = stage_layers(plan, replica, k, layers_);
    double left = 0;  // of the last backward, before the layers behind this one are done
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      left += layer_backward_s(costs[l], recomputed[l], slow, inside);
    }
    for (std::uint32_t l = range.last; l-- > range.first;) {
      left -= layer_backward_s(costs[l], recomputed[l], slow, inside);
      if (costs[l].params > 0) {
        done = std::max(done, ends_s[k] - left) + tail.tail.sync_s(costs[l].params);
      }
    }
    done = std::max(done, ends_s[k]);
    if (k == group) {
      return done;
    }
  }
}

double PlanEvaluator::step_time_s(const Plan& plan, const ClusterState& state) {
  const std::vector<Ring> rings = replica_rings(job_.cluster, plan, state);
  std::vector<Tail> first;
  double synchronised = 0;
  double update = 0;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const std::vector<double>& ends =
        class_ends_s(class_of(pipeline_of(plan, r, state)), plan.microbatches[r]);
    for (std::uint32_t g = 0; g < plan.stages(); ++g) {
      if (r == 0) {
        first.push_back(tail_of(plan, 0, g, rings[g]));
      }
      const Tail tail = tail_as_first(plan, r, g) ? first[g] : tail_of(plan, r, g, rings[g]);
      update = std::max(update, tail.tail.update_s(tail.params));
      synchronised = std::max(synchronised, synchronised_s(plan, r, g, tail, ends, state));
    }
  }
  return synchronised + update;
}

std::vector<GroupEnd> PlanEvaluator::group_ends(const Plan& plan, std::uint32_t replica,
                                                const ClusterState& state) {
  const std::vector<Ring> rings = replica_rings(job_.cluster, plan, state);
  const std::vector<double>& ends =
      class_ends_s(class_of(pipeline_of(plan, replica, state)), plan.microbatches[replica]);
  std::vector<GroupEnd> result;
  for (std::uint32_t g = 0; g < plan.stages(); ++g) {
    const Tail tail = tail_of(plan, replica, g, rings[g]);
    GroupEnd end;
    for (std::uint32_t k = g; k < plan.pp_splits.size(); k += plan.stages()) {
      end.end_s = std::max(end.end_s, ends[k]);
    }
    end.synchronised_s = synchronised_s(plan, replica, g, tail, ends, state);
    end.update_s = tail.tail.update_s(tail.params);
    result.push_back(end);
  }
  return result;
}

MemoryRule PlanEvaluator::rule_of(const Plan& plan, std::uint32_t replica,
                                  std::uint32_t group) const {
  return memory_rule(job_, sharding_of(plan, replica, group).node_type, plan.replicas());
}

double PlanEvaluator::memory_bytes(const Plan& plan, std::uint32_t replica, std::uint32_t group) {
  const MemoryRule rule = rule_of(plan, replica, group);
  const std::vector<bool>& recomputed = plan.checkpoint_of(replica);
  const std::vector<std::vector<std::uint32_t>> moments =
      held_chunks(plan.schedule, plan.stages(), plan.interleave, group, plan.microbatches[replica]);
  if (plan.interleave == 1) {
    return stage_memory_bytes(table(sharding_of(plan, replica, group)), rule,
                              stage_layers(plan, replica, group, layers_), moments[0][0],
                              recomputed);
  }
  double state = 0;
  double scratch = 0;
  std::vector<double> each(plan.interleave);  // of one microbatch of the chunk
  for (std::uint32_t c = 0; c < plan.interleave; ++c) {
    const std::uint32_t k = c * plan.stages() + group;
    const LayerTable& costs = table(sharding_of(plan, replica, k));
    const LayerRange range = stage_layers(plan, replica, k, layers_);
    const double chunk_state = costs.sum(range).params * rule.state_bytes_per_param;
    const double none = stage_memory_bytes(costs, rule, range, 0, recomputed);
    state += chunk_state;
    scratch = std::max(scratch, none - chunk_state);
    each[c] = stage_memory_bytes(costs, rule, range, 1, recomputed) - none;
  }
  double held = 0;
  for (const std::vector<std::uint32_t>& moment : moments) {
    held = std::max(held, std::inner_product(each.begin(), each.end(), moment.begin(), 0.0));
  }
  return state + scratch + held;
}

}  // namespace tapas::solver
