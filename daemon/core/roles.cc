#include "daemon/core/roles.h"

#include "solver/cost/predict.h"

namespace tapas::daemon {

Roles::Roles(const solver::Job& job, const solver::Plan& plan)
    : roles_(job.cluster.device_count()),
      by_stage_(plan.stages()),
      nodes_in_stage_(plan.stages(), 0) {
  const auto compute = solver::stage_compute(job, plan);
  std::vector<std::set<NodeId>> stage_nodes(plan.stages());
  for (std::uint32_t replica = 0; replica < plan.replicas(); ++replica) {
    for (std::uint32_t stage = 0; stage < plan.stages(); ++stage) {
      const solver::Position& position = plan.placement[replica][stage];
      const solver::StageCompute& expected = compute[replica][stage];
      for (const std::uint16_t device : position.devices) {
        const RankId rank = job.cluster.rank_of(position.node, device);
        roles_[rank.value()] = {true, replica, stage, expected.forward_s + expected.backward_s};
        by_stage_[stage].push_back(rank);
        ++held_;
      }
      stage_nodes[stage].insert(position.node);
      nodes_.insert(job.cluster.nodes[position.node.value()].name);
    }
  }
  for (std::uint32_t stage = 0; stage < plan.stages(); ++stage) {
    nodes_in_stage_[stage] = static_cast<std::uint32_t>(stage_nodes[stage].size());
  }
}

}  // namespace tapas::daemon
