#pragma once

#include "base/result.h"
#include "ctl/trace.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::ctl {

/// The collectives of one communicator as NCCL's inspector recorded them.
struct Communicator {
  std::string id;
  std::uint32_t size = 0;      ///< ranks it has, recorded or not
  std::uint32_t per_step = 1;  ///< collectives until their pattern repeats: what a step is here
  double step_s = 0;           ///< time between two steps, mean over the file
  /// A collective takes its transfer, the same for all, and the wait for who comes last. So a
  /// rank's compute_s is step_s and what it waited less than the median rank: never too much of a
  /// slowdown.
  Trace trace;
  /// [index into trace.ranks]: its process also exchanges data elsewhere, so that being late may be
  /// the fault of somebody it waited for there.
  std::vector<bool> elsewhere;
};

/// Reads the plugin's JSON lines, those of several processes one after the other. Errors name file
/// and line. Communicators of which one rank was recorded are left out.
[[nodiscard]] Result<std::vector<Communicator>> read_inspector(std::string_view name,
                                                               std::string_view text,
                                                               const ReplayProgress& progress);

}  // namespace tapas::ctl
