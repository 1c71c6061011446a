#pragma once

#include "solver/model/comm.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// A node's devices in the order in which 1, 2, 4, ... neighbours reach each other best: pairs by
/// the nearest and widest paths, then pairs of pairs, and so on. TP groups are runs of it. The
/// order of numbers when all paths are alike.
[[nodiscard]] std::vector<std::uint16_t> device_order(const CommTable& table,
                                                      std::uint32_t devices);

}  // namespace tapas::solver
