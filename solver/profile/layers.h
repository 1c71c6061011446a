#pragma once

#include "base/result.h"
#include "solver/model/graph.h"

namespace tapas::solver::profile {

/// Puts a graph whose nodes and edges are in any order into topological order and numbers its
/// layers. A node comes right before what first needs it, so that few tensors are alive at a cut.
/// Each operator that takes time or holds parameters starts a layer; the others (inputs, views)
/// join the layer before them. Fails on a cycle and on edges that lead nowhere.
[[nodiscard]] Result<void> arrange(Graph& graph);

}  // namespace tapas::solver::profile
