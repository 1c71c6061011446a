#pragma once

#include "solver/model/job.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tapas::twin {

/// One stage of one replica in one step: what each microbatch takes there, in seconds.
struct StageTimes {
  double forward_s = 0;        ///< compute and TP collectives
  double backward_s = 0;       ///< the same, recomputation included
  double send_forward_s = 0;   ///< activations to the next stage; 0 on the last
  double send_backward_s = 0;  ///< gradients to the previous stage; 0 on the first
  double input_s = 0;          ///< its first batch is there so long after the step began

  [[nodiscard]] double busy_s() const {
    return forward_s + backward_s + send_forward_s + send_backward_s;
  }
};

/// Runs one replica's pipeline and returns when each stage is done with its last microbatch, sends
/// included; the step starts at 0. Each stage works through its fixed order (1F1B or GPipe), waits
/// for the input of its next operation, and is busy while it sends; a send does not wait for the
/// receiver. Requires microbatches > 0 and a schedule other than kInterleaved.
[[nodiscard]] std::vector<double> run_pipeline(solver::Schedule schedule,
                                               std::span<const StageTimes> stages,
                                               std::uint32_t microbatches);

}  // namespace tapas::twin
