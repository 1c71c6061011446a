#pragma once

#include <cstddef>
#include <functional>

namespace tapas {

/// Calls `part` with every index below `count` on as many threads as there are processors, this one
/// among them, and returns when all are done. Parts must not throw and must not share what they
/// change.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& part);

}  // namespace tapas
