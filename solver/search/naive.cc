#include "solver/search/naive.h"

#include "solver/cost/plan_evaluator.h"

#include <algorithm>
#include <map>

namespace tapas::solver {
namespace {

void add(TierBytes& tiers, const Cluster& cluster, NodeId from, NodeId to, double bytes) {
  if (from == to) {
    tiers.node += bytes;
    return;
  }
  const FabricTier& tier = cluster.tier_between(from, to);
  (&tier == &cluster.tor ? tiers.tor : &tier == &cluster.pod ? tiers.pod : tiers.core) += bytes;
}

}  // namespace

Traffic traffic_of(const Job& job, const Plan& plan) {
  PlanEvaluator evaluator(job);
  Traffic traffic;
  const auto stages = static_cast<std::uint32_t>(plan.pp_splits.size());
  const std::uint32_t groups = plan.stages();
  const double members = plan.replicas();
  const double reduced = job.gradient_bytes_per_param +
                         (job.zero_stage > 0 ? job.bytes_per_param : job.gradient_bytes_per_param);
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const double m = plan.microbatches[r];
    for (std::uint32_t k = 0; k < stages; ++k) {
      const LayerTable& table = evaluator.table(evaluator.sharding_of(plan, r, k));
      const LayerRange range = stage_layers(plan, r, k, table.layers());
      const Position& here = plan.placement[r][k % groups];
      const double width = table.sharding().width;
      const LayerCost sum = table.sum(range);
      double wire = sum.wire_forward_bytes + sum.wire_backward_bytes;
      for (std::uint32_t l = range.first; l < range.last; ++l) {
        wire += plan.checkpoint[l] ? table[l].wire_forward_bytes : 0;
      }
      traffic.tp.node += wire * width * m;
      if (k + 1 < stages) {
        add(traffic.pp, job.cluster, here.node, plan.placement[r][(k + 1) % groups].node,
            2 * table.cut_bytes(range.last) * m);
      }
      if (plan.replicas() > 1) {
        const Position& next = plan.placement[(r + 1) % plan.replicas()][k % groups];
        add(traffic.dp, job.cluster, here.node, next.node,
            sum.params * width * reduced * (members - 1) / members);
      }
    }
  }
  return traffic;
}

std::optional<Plan> in_naive_order(const Job& job, const Plan& plan) {
  struct Cursor {
    std::size_t node = 0;
    std::uint32_t device = 0;
  };
  std::map<std::uint32_t, Cursor> cursors;  // by node type
  Plan naive = plan;
  for (std::uint32_t g = 0; g < plan.stages(); ++g) {
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      Position& position = naive.placement[r][g];
      const auto width = static_cast<std::uint32_t>(position.devices.size());
      const std::uint32_t type = job.cluster.nodes[position.node.value()].type;
      const std::uint32_t devices = job.cluster.node_types[type].devices;
      Cursor& at = cursors[type];
      const auto fits = [&] {
        const Node& node = job.cluster.nodes[at.node];
        return node.type == type && !node.spare && at.device + width <= devices;
      };
      while (at.node < job.cluster.nodes.size() && !fits()) {
        ++at.node;
        at.device = 0;
      }
      if (at.node == job.cluster.nodes.size()) {
        return std::nullopt;
      }
      position.node = NodeId(static_cast<std::uint32_t>(at.node));
      for (std::uint16_t& device : position.devices) {
        device = static_cast<std::uint16_t>(at.device++);
      }
    }
  }
  return naive;
}

}  // namespace tapas::solver
