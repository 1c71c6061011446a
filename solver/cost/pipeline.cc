#include "solver/cost/pipeline.h"

#include <algorithm>

namespace tapas::solver {

std::uint32_t warm_up(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                      std::uint32_t microbatches) {
  return schedule == Schedule::kGpipe ? microbatches : std::min(stages - 1 - stage, microbatches);
}

std::uint32_t in_flight(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                        std::uint32_t microbatches) {
  return schedule == Schedule::kGpipe ? microbatches : std::min(stages - stage, microbatches);
}

double pipeline_time_s(const Pipeline& pipeline, std::uint32_t microbatches) {
  const auto stages = static_cast<std::uint32_t>(pipeline.forward_s.size());
  const std::size_t m = microbatches;
  std::vector<double> free_at(stages, 0.0);
  std::vector<double> forward_end(stages * m, 0.0);
  std::vector<std::uint32_t> warm(stages);
  const auto forward = [&](std::uint32_t s, std::size_t i) {
    double start = free_at[s];
    if (s > 0) {
      start = std::max(start, forward_end[(s - 1) * m + i] + pipeline.forward_delay_s[s - 1]);
    }
    free_at[s] = start + pipeline.forward_s[s];
    forward_end[s * m + i] = free_at[s];
  };
  // Earlier stages warm up at least as long as later ones, so going left to right within each
  // round finds every input already computed.
  for (std::uint32_t s = 0; s < stages; ++s) {
    warm[s] = warm_up(pipeline.schedule, stages, s, microbatches);
    for (std::uint32_t i = 0; i < warm[s]; ++i) {
      forward(s, i);
    }
  }
  double end = 0;
  for (std::size_t i = 0; i < m; ++i) {
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (i + warm[s] < m) {
        forward(s, i + warm[s]);
      }
    }
    double arrival = 0;
    for (std::uint32_t s = stages; s-- > 0;) {
      const double start = std::max(free_at[s], arrival);
      free_at[s] = start + pipeline.backward_s[s];
      arrival = s > 0 ? free_at[s] + pipeline.backward_delay_s[s - 1] : 0;
    }
    end = free_at[0];
  }
  return std::max(end, *std::max_element(free_at.begin(), free_at.end()));
}

}  // namespace tapas::solver
