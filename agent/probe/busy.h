#pragma once

#include <chrono>

namespace tapas::agent::probe {

/// How long the calling thread has run or waited for a processor since it began. Where the kernel
/// does not count the waiting (no scheduler statistics), only how long it ran.
[[nodiscard]] std::chrono::nanoseconds busy_time();

}  // namespace tapas::agent::probe
