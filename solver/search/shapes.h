#pragma once

#include "solver/cost/cost_model.h"
#include "solver/model/job.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// One choice of the outer search.
struct Shape {
  Sharding sharding;
  std::uint32_t stages = 1;
  std::uint32_t replicas = 1;
  std::uint32_t microbatches = 1;  ///< of the replica that has most
};

/// Nodes of one type that are no spare.
struct Pool {
  std::uint32_t node_type = 0;
  std::vector<NodeId> nodes;                ///< neighbours under one ToR and pod are adjacent
  std::vector<std::uint16_t> device_order;  ///< of a node; TP groups are runs of it
};
/// Those of the type with the most peak flops in all.
[[nodiscard]] Pool usable_nodes(const Cluster& cluster);
/// One pool per node type with nodes that are no spare, the one with the most peak flops first.
[[nodiscard]] std::vector<Pool> usable_pools(const Cluster& cluster);

/// TP widths within the job's settings that fit a node, measured or not.
[[nodiscard]] std::vector<std::uint32_t> list_widths(const Job& job, const Pool& pool);

/// All combinations of one pool within the job's settings, less the widths that check_measured()
/// refuses.
[[nodiscard]] std::vector<Shape> list_shapes(const Job& job, const Pool& pool);

}  // namespace tapas::solver
