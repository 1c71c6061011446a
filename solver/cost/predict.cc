#include "solver/cost/predict.h"

#include "solver/cost/plan_evaluator.h"

#include <algorithm>

namespace tapas::solver {
namespace {

/// mem_stage = sum(mem) + max(act) * checkpoint_ratio, with the share of layers that keep their
/// activations as the ratio.
double document_memory_bytes(const LayerTable& table, const MemoryRule& rule, LayerRange range,
                             const std::vector<bool>& checkpoint) {
  double largest = 0;
  double kept = 0;
  for (std::uint32_t l = range.first; l < range.last; ++l) {
    largest = std::max(largest, table[l].stash_bytes);
    kept += checkpoint[l] ? 0 : 1;
  }
  return table.sum(range).params * rule.state_bytes_per_param +
         largest * kept / (range.last - range.first);
}

bool other_size(const Job& job, const Plan& plan) {
  return plan.micro_batch_size != 0 && plan.micro_batch_size != job.graph.micro_batch_size;
}

}  // namespace

Prediction predict(const Job& job, const Plan& plan, const ClusterState& state) {
  if (other_size(job, plan)) {
    return predict(with_micro_batch_size(job, plan.micro_batch_size), plan, state);
  }
  PlanEvaluator evaluator(job);
  return predict(evaluator, plan, state);
}

Prediction predict(PlanEvaluator& evaluator, const Plan& plan, const ClusterState& state) {
  const Job& job = evaluator.job();
  const std::uint32_t layers = job.graph.layer_count();
  Prediction p;
  p.step_time_s = evaluator.step_time_s(plan, state);

  double model_flops = 0;
  for (const OpNode& op : job.graph.nodes) {
    model_flops += op.fwd_flops + op.bwd_flops;
  }
  double peak = 0;
  for (const auto& row : plan.placement) {
    for (const Position& position : row) {
      peak += job.cluster.device_type_of(position.node).peak_flops *
              static_cast<double>(position.devices.size());
    }
  }
  double microbatches = 0;
  for (const std::uint32_t m : plan.microbatches) {
    microbatches += m;
  }
  p.peak_fraction = model_flops * microbatches / (p.step_time_s * peak);

  const Pipeline first = evaluator.pipeline_of(plan, 0, state);
  const std::vector<Ring> rings = replica_rings(job.cluster, plan, state);
  const auto all = static_cast<std::uint32_t>(plan.pp_splits.size());
  p.stage_time_s.assign(plan.stages(), 0);
  p.stage_memory_bytes.assign(plan.stages(), 0);
  for (std::uint32_t g = 0; g < plan.stages(); ++g) {
    for (std::uint32_t k = g; k < all; k += plan.stages()) {
      p.stage_time_s[g] += first.forward_s[k] + first.backward_s[k];
    }
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      const double m = plan.microbatches[r];
      const std::vector<bool>& recomputed = plan.checkpoint_of(r);
      double document_bytes = 0;
      double wire = 0;
      double sent = 0;
      double params = 0;
      for (std::uint32_t k = g; k < all; k += plan.stages()) {
        const LayerTable& table = evaluator.table(evaluator.sharding_of(plan, r, k));
        const LayerRange range = stage_layers(plan, r, k, layers);
        const LayerCost sum = table.sum(range);
        params += sum.params;
        wire += sum.wire_forward_bytes + sum.wire_backward_bytes;
        for (std::uint32_t l = range.first; l < range.last; ++l) {
          wire += recomputed[l] ? table[l].wire_forward_bytes : 0;
        }
        sent += ((k + 1 < all ? table.cut_bytes(range.last) : 0) +
                 (k > 0 ? table.cut_bytes(range.first) : 0)) /
                table.sharding().width;
        document_bytes +=
            document_memory_bytes(table, evaluator.rule_of(plan, r, g), range, recomputed);
      }
      p.stage_memory_bytes[g] =
          std::max(p.stage_memory_bytes[g], job.search.model == CostModelKind::kDocument
                                                ? document_bytes
                                                : evaluator.memory_bytes(plan, r, g));
      const double members = rings[g].members;
      const double reduced =
          params * (job.gradient_bytes_per_param +
                    (job.zero_stage > 0 ? job.bytes_per_param : job.gradient_bytes_per_param));
      p.tp_bytes = std::max(p.tp_bytes, wire * m);
      p.pp_bytes = std::max(p.pp_bytes, sent * m);
      p.dp_bytes = std::max(p.dp_bytes, reduced * (members - 1) / members);
    }
  }
  return p;
}

std::vector<std::vector<StageCompute>> stage_compute(const Job& job, const Plan& plan) {
  if (other_size(job, plan)) {
    return stage_compute(with_micro_batch_size(job, plan.micro_batch_size), plan);
  }
  PlanEvaluator evaluator(job);
  std::vector<std::vector<StageCompute>> compute(plan.replicas());
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      compute[r].push_back(evaluator.compute_of(plan, r, s));
    }
  }
  return compute;
}

}  // namespace tapas::solver
