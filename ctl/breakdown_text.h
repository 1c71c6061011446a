#pragma once

#include "base/json/json.h"
#include "solver/cost/breakdown.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/search/naive.h"

#include <cstdint>
#include <optional>
#include <string>

/// Where each second and each byte of a plan goes, and what its placement wins, for people.
namespace tapas::ctl {

struct PlacementReport {
  double step_time_s = 0;
  solver::Traffic traffic;
  /// The same plan with the nodes in the order of the cluster file; absent when that has no room.
  std::optional<double> naive_step_time_s;
  solver::Traffic naive_traffic;
};
[[nodiscard]] PlacementReport placement_report(const solver::Job& job, const solver::Plan& plan);

/// Tables of one replica, then the placement. Requires replica < plan.replicas().
[[nodiscard]] std::string breakdown_text(const solver::Job& job, const solver::Plan& plan,
                                         const solver::Breakdown& breakdown,
                                         const PlacementReport& placement, std::uint32_t replica);
/// All replicas, `tapas.breakdown/1`.
[[nodiscard]] json::Value breakdown_to_json(const solver::Job& job, const solver::Plan& plan,
                                            const solver::Breakdown& breakdown,
                                            const PlacementReport& placement);

/// "TP 8 x PP 16 x DP 8".
[[nodiscard]] std::string shape_of(const solver::Plan& plan);

}  // namespace tapas::ctl
