#pragma once

#include "base/result.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"
#include "solver/replan/micro_replan.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace tapas::daemon {

/// How much a plan changes of the one before it; each may do what those before it do.
enum class Answer : std::uint8_t {
  kWait,          ///< nothing
  kMicrobatches,  ///< between replicas; no layer moves
  kLayers,        ///< cuts and recomputation; every stage stays on its devices
  kNodes,         ///< stages change places
  kSpare,         ///< a node that had none gets a stage
};
std::string_view to_string(Answer answer);
/// For a sentence: "move layers".
std::string_view in_words(Answer answer);

[[nodiscard]] Answer answer_of(const solver::Plan& from, const solver::Plan& to);

/// Beside a proposal, the best of those that change less than it does, so that each can be priced.
/// Only proposals that improve.
[[nodiscard]] std::vector<solver::Proposal> lesser_answers(const solver::Job& job,
                                                           const solver::ReplanRequest& request,
                                                           const solver::Proposal& proposal,
                                                           const solver::ReplanLimits& limits);

}  // namespace tapas::daemon
