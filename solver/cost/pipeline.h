#pragma once

#include "solver/model/job.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tapas::solver {

/// One replica's pipeline. Stage k runs on device group k % groups(); with one chunk the two are
/// the same. Seconds of one microbatch on each stage, and the one-way delays of the link after
/// each. A delay postpones the receiver and keeps nobody busy.
struct Pipeline {
  Schedule schedule = Schedule::k1f1b;
  std::uint32_t chunks = 1;              ///< stages of each device group; more need kInterleaved
  std::vector<double> forward_s;         ///< per stage
  std::vector<double> backward_s;        ///< per stage, recomputation included
  std::vector<double> forward_delay_s;   ///< [k]: stage k to k + 1; stages - 1 entries
  std::vector<double> backward_delay_s;  ///< [k]: stage k + 1 to k

  [[nodiscard]] std::uint32_t stages() const {
    return static_cast<std::uint32_t>(forward_s.size());
  }
  [[nodiscard]] std::uint32_t groups() const { return stages() / chunks; }

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// Forwards that a stage runs before its first backward, less one when more follow. One chunk.
[[nodiscard]] std::uint32_t warm_up(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                                    std::uint32_t microbatches);

/// Least that a stage waits in a step: for its first backward, `later_s` after its first forward,
/// while it can do only its `warm_up` forwards (at most m - 1); and for its last backward,
/// `later_s` after its last forward, while only as many backwards are left. With few microbatches
/// the two may be the same wait. `later_s`: all behind the stage, one microbatch there and back.
[[nodiscard]] inline double least_wait_s(std::uint32_t microbatches, std::uint32_t warm_up,
                                         double forward_s, double backward_s, double later_s) {
  const double first = std::max(0.0, later_s - warm_up * forward_s);
  const double last = std::max(0.0, later_s - warm_up * backward_s);
  return microbatches >= warm_up + 2 ? first + last : std::max(first, last);
}

/// Microbatches whose activations a stage holds at once: min(m, S - s), or m for GPipe. One chunk.
[[nodiscard]] std::uint32_t in_flight(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                                      std::uint32_t microbatches);

/// Microbatches of each chunk that a device group of an interleaved pipeline holds at once: all
/// moments that hold no less than another, [moment][chunk]. With one chunk, in_flight().
[[nodiscard]] std::vector<std::vector<std::uint32_t>> held_chunks(Schedule schedule,
                                                                  std::uint32_t groups,
                                                                  std::uint32_t chunks,
                                                                  std::uint32_t group,
                                                                  std::uint32_t microbatches);

/// Whether the schedule can run so many microbatches: interleaving needs whole rounds of one per
/// device group.
[[nodiscard]] bool runs_microbatches(std::uint32_t groups, std::uint32_t chunks,
                                     std::uint32_t microbatches);

/// One forward or backward of one microbatch on one stage.
struct Action {
  std::uint32_t stage = 0;
  std::uint32_t microbatch = 0;
  bool forward = true;
  double start_s = 0;
  double end_s = 0;
};

/// Runs schedules: the exact longest path of the action order of every device group. Keeps its
/// memory between calls; O(stages * microbatches), less once a plain pipeline runs steadily.
class PipelineClock {
 public:
  /// When each stage ends its last backward, counted from the first forward. Valid until the next
  /// call. Requires runs_microbatches().
  [[nodiscard]] std::span<const double> ends_s(const Pipeline& pipeline,
                                               std::uint32_t microbatches);

  /// Everything that happens, in the order of computation: each group's actions in its own order.
  [[nodiscard]] std::vector<Action> timeline(const Pipeline& pipeline, std::uint32_t microbatches);

 private:
  template <typename Record>
  void run(const Pipeline& pipeline, std::uint32_t microbatches, bool skip_steady,
           const Record& record);
  template <typename Record>
  void run_plain(const Pipeline& pipeline, std::uint32_t microbatches, bool skip_steady,
                 const Record& record);
  template <typename Record>
  void run_interleaved(const Pipeline& pipeline, std::uint32_t microbatches, const Record& record);

  /// When the last two rounds of a plain schedule differ by the same time everywhere, all that
  /// follow do: the recurrence is max-plus linear. Adds the rounds that are left and returns their
  /// number, or 0.
  [[nodiscard]] std::uint32_t skip(std::uint32_t round, std::uint32_t left);

  std::vector<double> ends_;
  std::vector<double> free_before_;     ///< a round ago
  std::vector<double> pending_before_;  ///< a round ago
  std::vector<double> free_;            ///< [group]
  std::vector<double> pending_;         ///< one chunk: [stage] arrival of the next forward's input
  std::vector<double> arrival_;  ///< arrivals of forward and backward inputs, or of the warm-up's
  std::vector<std::uint32_t> warm_;
  std::vector<std::uint32_t> next_;  ///< [group] index of its next action
  std::vector<std::uint32_t> ready_;
};

/// From the first forward to the end of the last backward.
[[nodiscard]] double pipeline_time_s(const Pipeline& pipeline, std::uint32_t microbatches);

}  // namespace tapas::solver
