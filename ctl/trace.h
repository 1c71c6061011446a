#pragma once

#include "base/result.h"
#include "ctl/lines.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::ctl {

/// A recorded run: one row per step (the job's step time only), or one per step and rank.
struct Trace {
  struct Rank {
    std::uint32_t number = 0;  ///< as the file numbers it
    std::uint32_t stage = 0;
    std::uint32_t replica = 0;
    std::string name = {};  ///< for people; empty = by its number
  };
  struct Row {
    std::uint64_t step = 0;
    std::uint32_t rank = 0;  ///< index into ranks
    bool plain = true;       ///< false: the file names a phase (evaluation, checkpoint, ...)
    double wall_s = 0;
    double compute_s = 0;  ///< forward + backward of one microbatch; 0 = only wall times known
    double input_s = 0;    ///< waiting for the next batch
    double tokens = 0;     ///< of a microbatch; 0 = not known
  };
  std::vector<Rank> ranks;  ///< ascending by number
  std::vector<Row> rows;    ///< ascending by step
  std::uint64_t steps = 0;  ///< different ones
  [[nodiscard]] bool by_rank() const { return ranks.size() > 1; }
};

/// Reads comma-separated text with a header line; columns in any order, others are skipped:
/// - `step`, `iteration_time_s`: a job's step times;
/// - `step`, `rank`, and `compute_s` or both `fwd_compute_s` and `bwd_compute_s`; optional
///   `microbatches`, `pp_stage`, `dp_rank`, `step_span_s`, `input_wait_s`, `work_tokens`, `phase`
///   (empty = plain training).
/// Steps never go back. Errors name file and line, what was seen and what was expected.
[[nodiscard]] Result<Trace> read_trace(std::string_view name, std::string_view text,
                                       const ReplayProgress& progress);

/// Recorded transfers between nodes.
struct LinkTrace {
  struct Row {
    std::uint64_t step = 0;
    std::uint32_t from = 0;  ///< index into nodes
    std::uint32_t to = 0;
    double seconds_per_byte = 0;
  };
  std::vector<std::string> nodes;  ///< by name
  std::vector<Row> rows;           ///< ascending by step
  std::uint64_t steps = 0;         ///< different ones
};
/// The header names the columns of transfers.
[[nodiscard]] bool has_links(std::string_view text);
/// Reads `step`, `src`, `dst` (names of nodes), `bytes`, `transfer_s` (without waiting); else as
/// read_trace().
[[nodiscard]] Result<LinkTrace> read_link_trace(std::string_view name, std::string_view text,
                                                const ReplayProgress& progress);

}  // namespace tapas::ctl
