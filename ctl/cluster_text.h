#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "solver/model/cluster.h"
#include "solver/model/io/catalogue.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Clusters (tapas.cluster/1) for people: made from the catalogue, and shown.
namespace tapas::ctl {

struct NewCluster {
  std::string name = "cluster";
  /// One kind of node each, in this order.
  struct Group {
    solver::CatalogueDevice device;
    std::uint32_t nodes = 1;
  };
  std::vector<Group> groups;
  std::uint32_t devices = 0;        ///< per node; 0 = as usual for the device
  std::string topo_file;            ///< as the cluster file is to name it; only with one group
  std::uint32_t nodes_per_tor = 0;  ///< 0 = all under one
  std::uint32_t tors_per_pod = 0;   ///< 0 = all in one
  std::uint32_t spares = 0;         ///< the last nodes of each group
  double core_oversubscription = 1;
};
/// Every number written out, so that the file stays as it is when the catalogue changes.
[[nodiscard]] json::Value cluster_to_json(const NewCluster& cluster);

/// Device types, node types, nodes by ToR, and what each tier gives a pair of nodes.
[[nodiscard]] std::string cluster_text(const solver::Cluster& cluster);
[[nodiscard]] json::Value cluster_summary(const solver::Cluster& cluster);

/// What is allowed but probably not meant, one sentence each.
[[nodiscard]] std::vector<std::string> cluster_warnings(const solver::Cluster& cluster);

/// A node type's `measured_collectives`.
[[nodiscard]] json::Value collectives_to_json(const std::vector<solver::MeasuredCollective>& table);

using Catalogue = std::vector<std::pair<std::string, solver::CatalogueDevice>>;
[[nodiscard]] std::string catalogue_text(const Catalogue& catalogue);
[[nodiscard]] json::Value catalogue_to_json(const Catalogue& catalogue);

}  // namespace tapas::ctl
