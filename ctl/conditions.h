#pragma once

#include "base/result.h"
#include "solver/model/cluster.h"
#include "solver/model/cluster_state.h"

#include <string>
#include <vector>

/// What is slow, taken out or held fast, as an operator writes it.
namespace tapas::ctl {

struct Conditions {
  std::vector<std::string> slow = {};  ///< "NODE=FACTOR" or "NODE:DEVICE=FACTOR"
  std::vector<std::string> send = {};  ///< "NODE=FACTOR", as the next two
  std::vector<std::string> receive = {};
  std::vector<std::string> inside = {};
  std::vector<std::string> path = {};  ///< "FROM,TO=FACTOR"
  std::vector<std::string> drain = {};
  std::vector<std::string> pin = {};
};

/// Several factors of one thing are an error, as they contradict each other; a device's factor
/// stands over its node's. Errors name the option, and the node that was probably meant.
[[nodiscard]] Result<solver::ClusterState> cluster_state(const Conditions& conditions,
                                                         const solver::Cluster& cluster);
/// Per NodeId; empty when none is pinned.
[[nodiscard]] Result<std::vector<bool>> pinned_nodes(const Conditions& conditions,
                                                     const solver::Cluster& cluster);

}  // namespace tapas::ctl
