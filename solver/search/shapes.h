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

/// The nodes the search uses: those that are no spare, of the type with the most peak flops in all.
struct Pool {
  std::uint32_t node_type = 0;
  std::vector<NodeId> nodes;                ///< neighbours under one ToR and pod are adjacent
  std::vector<std::uint16_t> device_order;  ///< of a node; TP groups are runs of it
};
[[nodiscard]] Pool usable_nodes(const Cluster& cluster);

/// TP widths within the job's settings that fit a node, measured or not.
[[nodiscard]] std::vector<std::uint32_t> list_widths(const Job& job, const Pool& pool);

/// All combinations within the job's settings, less the widths that check_measured() refuses. Of
/// the replica counts that give the same largest share of microbatches only the smallest (least to
/// synchronise) and the largest (most memory saved by ZeRO) are listed: those between are no
/// faster.
[[nodiscard]] std::vector<Shape> list_shapes(const Job& job, const Pool& pool);

}  // namespace tapas::solver
