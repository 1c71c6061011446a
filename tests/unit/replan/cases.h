#pragma once

#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/replan/layout.h"
#include "solver/replan/micro_replan.h"

#include <cstdint>
#include <vector>

/// Running jobs that something happened to, for the tests of solver/replan.
namespace tapas::solver::testing {

struct Case {
  Job job;
  ReplanRequest request;
};

/// A job of two to four stages and one to four replicas with a valid plan that is far from the
/// best, everything measured and every capability drawn: equal or uneven layers, one or two groups
/// per node, spares, one or two node types, memory tight or not, cuts and flags of each replica.
[[nodiscard]] Case random_case(std::uint64_t seed);

/// A decoder of equal layers on whole nodes, equal microbatches, an episode of half an hour:
/// `replicas` rows of as many stages as there are cuts, nodes in order, `spares` spare nodes behind
/// them. Layers are so long that seconds of a switch pay, links so fast that only slow ones count.
[[nodiscard]] Case even_case(const std::vector<std::uint32_t>& cuts, std::uint32_t layers,
                             std::uint32_t replicas, std::uint32_t spares);

void slow_node(Case& what, NodeId node, double factor);
void slow_links(Case& what, NodeId node, const NodeLinks& links);

/// Whether these cuts of the replica, of all where they share one split, leave pinned stages as
/// they are.
[[nodiscard]] bool keeps_pinned(const Layout& layout, std::uint32_t replica,
                                const std::vector<std::uint32_t>& cuts);

}  // namespace tapas::solver::testing
