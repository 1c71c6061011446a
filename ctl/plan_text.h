#pragma once

#include "base/json/json.h"
#include "base/result.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Plans (tapas.plan/1) and moves for people. Works on the JSON, as the daemon's answers come
/// without the job that a solver::Plan needs to be read.
namespace tapas::ctl {

/// The part of a plan that people compare.
struct PlanView {
  struct Stage {
    std::uint32_t first_layer = 0;
    std::uint32_t last_layer = 0;  ///< one past the end
    std::string place;             ///< "a800-003[0-7]"

    [[nodiscard]] std::string layers() const;  ///< "12-23", "none"
  };
  std::string job;
  std::uint64_t epoch = 0;
  std::uint64_t parent = 0;
  std::string schedule;
  std::uint32_t interleave = 1;               ///< stages of each device group
  std::uint32_t micro_batch_size = 0;         ///< 0 = the job's
  std::vector<std::uint32_t> tp_width;        ///< per layer
  std::vector<std::vector<bool>> checkpoint;  ///< [replica][layer]
  std::uint32_t sp_width = 1;
  std::vector<std::uint32_t> microbatches;
  std::vector<std::vector<Stage>> replicas;  ///< [replica][stage]
  double step_time_s = 0;
  double lower_bound_s = 0;
  double gap_ratio = 0;
  double peak_fraction = 0;
  std::vector<double> stage_time_s;
  std::vector<double> stage_memory_bytes;

  /// Device groups of a replica; group g has the stages g, g + groups(), ...
  [[nodiscard]] std::size_t groups() const;
  [[nodiscard]] std::string shape() const;  ///< "TP 8 x PP 8 x DP 16", "... x 6 chunks"
};
[[nodiscard]] Result<PlanView> plan_view(const json::Value& plan);

/// Header, stage table of replica 0, replicas that are cut differently, predictions.
/// `memory_caps_bytes` per device group; empty = not known.
[[nodiscard]] std::string plan_text(const PlanView& plan,
                                    const std::vector<double>& memory_caps_bytes = {});

struct PlanChange {
  std::string what;   ///< "layers", "placement", "recompute", "microbatches", "tp_width", "shape"
  std::string where;  ///< "job", "replicas 0-7 stage 5", "layer 12"
  std::string before;
  std::string after;
};
/// Everything that differs and that the runtime would notice; predictions are left out.
[[nodiscard]] std::vector<PlanChange> plan_changes(const PlanView& before, const PlanView& after);
[[nodiscard]] std::string changes_text(const std::vector<PlanChange>& changes);
[[nodiscard]] json::Value changes_to_json(const std::vector<PlanChange>& changes);

/// Moves of a proposal, one line per group of layers that go the same way; then count and bytes.
[[nodiscard]] std::string moves_text(const json::Value& moves);

/// {3,4,5,9} is "3-5,9". Requires ascending numbers.
[[nodiscard]] std::string number_ranges(const std::vector<std::uint32_t>& numbers);

}  // namespace tapas::ctl
