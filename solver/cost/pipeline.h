#pragma once

#include "solver/model/job.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// One replica's pipeline: seconds of one microbatch on each stage, and the one-way delays of the
/// link after each stage. A delay postpones the receiver and keeps no stage busy.
struct Pipeline {
  Schedule schedule = Schedule::k1f1b;
  std::vector<double> forward_s;         ///< per stage
  std::vector<double> backward_s;        ///< per stage, recomputation included
  std::vector<double> forward_delay_s;   ///< [s]: stage s to s + 1; stages - 1 entries
  std::vector<double> backward_delay_s;  ///< [s]: stage s + 1 to s
};

/// Forwards that a stage runs before its first backward, less one when more follow.
[[nodiscard]] std::uint32_t warm_up(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                                    std::uint32_t microbatches);

/// Microbatches whose activations a stage holds at once: min(m, S - s), or m for GPipe.
[[nodiscard]] std::uint32_t in_flight(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                                      std::uint32_t microbatches);

/// From the first forward to the end of the last backward: the exact longest path of the
/// schedule's action order, O(stages * microbatches).
[[nodiscard]] double pipeline_time_s(const Pipeline& pipeline, std::uint32_t microbatches);

}  // namespace tapas::solver
