#pragma once

#include "base/json/json.h"
#include "solver/model/job.h"
#include "solver/replan/micro_replan.h"

namespace tapas::solver {

/// `tapas.proposal/1` of docs/operator-api.md but its `message`. `job` is what the proposal is for.
[[nodiscard]] json::Value proposal_to_json(const Proposal& proposal, const Job& job);

}  // namespace tapas::solver
