#pragma once

#include "base/ids.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tapas::daemon {

/// What a device does under a plan.
struct Role {
  bool held = false;  ///< false: the plan leaves the device idle
  std::uint32_t replica = 0;
  std::uint32_t stage = 0;
  double compute_s = 0;  ///< expected forward + backward of one microbatch on a healthy device
};

/// The plan seen from the devices: who does what, and who does the same.
class Roles {
 public:
  Roles() = default;
  /// Requires a plan that passes check_plan().
  Roles(const solver::Job& job, const solver::Plan& plan);
  /// One role for each device of the cluster.
  Roles(const solver::Cluster& cluster, std::vector<Role> roles);

  /// Requires rank < the cluster's device_count().
  [[nodiscard]] const Role& of(RankId rank) const { return roles_[rank.value()]; }
  /// Per RankId of the cluster; empty before there is a plan.
  [[nodiscard]] const std::vector<Role>& all() const { return roles_; }
  [[nodiscard]] const std::vector<std::vector<RankId>>& by_stage() const { return by_stage_; }
  [[nodiscard]] const std::vector<std::vector<RankId>>& by_replica() const { return by_replica_; }
  /// True when the stage runs on enough nodes to be its own yardstick: with three, one slow node
  /// does not move the median. Other ranks are compared with the whole job.
  [[nodiscard]] bool has_equals(std::uint32_t stage) const { return nodes_in_stage_[stage] >= 3; }
  [[nodiscard]] std::uint32_t nodes_in_stage(std::uint32_t stage) const {
    return nodes_in_stage_[stage];
  }
  /// The ranks that `rank` is compared with.
  [[nodiscard]] std::vector<RankId> equals_of(RankId rank) const;
  [[nodiscard]] std::uint32_t held() const { return held_; }
  /// Names of the nodes that hold a position.
  [[nodiscard]] const std::set<std::string>& nodes() const { return nodes_; }

 private:
  std::vector<Role> roles_;
  std::vector<std::vector<RankId>> by_stage_;
  std::vector<std::vector<RankId>> by_replica_;
  std::vector<std::uint32_t> nodes_in_stage_;
  std::uint32_t held_ = 0;
  std::set<std::string> nodes_;
};

}  // namespace tapas::daemon
