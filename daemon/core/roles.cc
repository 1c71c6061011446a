#include "daemon/core/roles.h"

#include "solver/cost/predict.h"

#include <algorithm>
#include <utility>

namespace tapas::daemon {
namespace {

std::vector<Role> roles_of(const solver::Job& job, const solver::Plan& plan) {
  std::vector<Role> roles(job.cluster.device_count());
  const auto compute = solver::stage_compute(job, plan);
  for (std::uint32_t replica = 0; replica < plan.replicas(); ++replica) {
    for (std::uint32_t stage = 0; stage < plan.stages(); ++stage) {
      const solver::Position& position = plan.placement[replica][stage];
      const solver::StageCompute& expected = compute[replica][stage];
      for (const std::uint16_t device : position.devices) {
        roles[job.cluster.rank_of(position.node, device).value()] = {
            true, replica, stage, expected.forward_s + expected.backward_s};
      }
    }
  }
  return roles;
}

}  // namespace

Roles::Roles(const solver::Job& job, const solver::Plan& plan)
    : Roles(job.cluster, roles_of(job, plan)) {}

Roles::Roles(const solver::Cluster& cluster, std::vector<Role> roles) : roles_(std::move(roles)) {
  std::vector<std::set<NodeId>> stage_nodes;
  for (std::uint32_t r = 0; r < roles_.size(); ++r) {
    const Role& role = roles_[r];
    if (!role.held) {
      continue;
    }
    if (role.stage >= by_stage_.size()) {
      by_stage_.resize(role.stage + 1);
      stage_nodes.resize(role.stage + 1);
    }
    by_replica_.resize(std::max<std::size_t>(by_replica_.size(), role.replica + 1));
    by_replica_[role.replica].emplace_back(r);
    const NodeId node = cluster.node_of(RankId(r));
    by_stage_[role.stage].emplace_back(r);
    stage_nodes[role.stage].insert(node);
    nodes_.insert(cluster.nodes[node.value()].name);
    ++held_;
  }
  for (const std::set<NodeId>& nodes : stage_nodes) {
    nodes_in_stage_.push_back(static_cast<std::uint32_t>(nodes.size()));
  }
}

std::vector<RankId> Roles::equals_of(RankId rank) const {
  std::vector<RankId> equals;
  const std::uint32_t stage = of(rank).stage;
  for (std::uint32_t other = 0; other < by_stage_.size(); ++other) {
    if (other == stage || !has_equals(stage)) {
      equals.insert(equals.end(), by_stage_[other].begin(), by_stage_[other].end());
    }
  }
  equals.erase(std::remove(equals.begin(), equals.end(), rank), equals.end());
  return equals;
}

}  // namespace tapas::daemon
