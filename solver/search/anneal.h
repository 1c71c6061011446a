#pragma once

#include "solver/search/shapes.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tapas::solver {

/// Simulated annealing over the outer choices: T0 = 100, alpha = 0.95, energy = 100 * ln(time), so
/// that one degree is about one percent of step time. `time_of` gives a shape's step time by index,
/// infinite when it does not fit, negative to stop. Deterministic for a seed.
void anneal(const std::vector<Shape>& shapes, std::uint64_t seed,
            const std::function<double(std::size_t)>& time_of);

}  // namespace tapas::solver
