#include "solver/model/cluster_state.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace tapas::solver {
namespace {

bool is_factor(double value) { return std::isfinite(value) && value > 0; }

Result<void> check_length(const char* what, std::size_t length, std::size_t needed,
                          const char* each) {
  if (length != 0 && length != needed) {
    return fail(ErrorCode::kInvalid,
                "cluster state: {} has {} entries, but the cluster has {} {}; give one for each, "
                "or none",
                what, length, needed, each);
  }
  return {};
}

Result<void> check_links(const Cluster& cluster, const ClusterState& state) {
  for (std::size_t n = 0; n < state.node_links.size(); ++n) {
    const NodeLinks& links = state.node_links[n];
    for (const auto& [name, factor] :
         {std::pair{"send", links.send}, std::pair{"receive", links.receive},
          std::pair{"inside", links.inside}}) {
      if (!is_factor(factor)) {
        return fail(ErrorCode::kInvalid,
                    "cluster state: the {} slowdown of node {} is {}; it must be positive", name,
                    cluster.nodes[n].name, factor);
      }
    }
  }
  return {};
}

Result<void> check_paths(const Cluster& cluster, const ClusterState& state) {
  std::set<std::pair<NodeId, NodeId>> seen;
  for (const PathSlowdown& path : state.paths) {
    for (const NodeId node : {path.from, path.to}) {
      if (node.value() >= cluster.nodes.size()) {
        return fail(ErrorCode::kInvalid,
                    "cluster state: a path names node {}, but the cluster has {} nodes",
                    node.value(), cluster.nodes.size());
      }
    }
    const std::string& from = cluster.nodes[path.from.value()].name;
    const std::string& to = cluster.nodes[path.to.value()].name;
    if (path.from == path.to) {
      return fail(ErrorCode::kInvalid,
                  "cluster state: a path goes from node {} to itself; what slows the inside of a "
                  "node belongs to its links",
                  from);
    }
    if (!is_factor(path.factor)) {
      return fail(ErrorCode::kInvalid,
                  "cluster state: the slowdown of the path from {} to {} is {}; it must be "
                  "positive",
                  from, to, path.factor);
    }
    if (!seen.insert({path.from, path.to}).second) {
      return fail(ErrorCode::kInvalid,
                  "cluster state: the path from {} to {} is given twice; give its worst slowdown "
                  "once",
                  from, to);
    }
  }
  return {};
}

}  // namespace

Result<void> validate(const Cluster& cluster, const ClusterState& state) {
  const std::size_t devices = cluster.device_count();
  const std::size_t nodes = cluster.nodes.size();
  if (auto ok = check_length("device_slowdown", state.device_slowdown.size(), devices, "devices");
      !ok) {
    return ok;
  }
  if (auto ok = check_length("drained", state.drained.size(), nodes, "nodes"); !ok) {
    return ok;
  }
  if (auto ok = check_length("node_links", state.node_links.size(), nodes, "nodes"); !ok) {
    return ok;
  }
  for (std::uint32_t r = 0; r < state.device_slowdown.size(); ++r) {
    if (!is_factor(state.device_slowdown[r])) {
      const RankId rank(r);
      return fail(ErrorCode::kInvalid,
                  "cluster state: the slowdown of device {} of node {} is {}; it must be positive",
                  cluster.device_of(rank), cluster.nodes[cluster.node_of(rank).value()].name,
                  state.device_slowdown[r]);
    }
  }
  if (auto ok = check_links(cluster, state); !ok) {
    return ok;
  }
  return check_paths(cluster, state);
}

}  // namespace tapas::solver
