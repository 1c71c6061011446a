#pragma once

#include "base/json/json.h"

#include <string>

/// Proposals (tapas.proposal/1) for people.
namespace tapas::ctl {

/// The reason, step and bound, switch and gain, what was tried and why the search ended, the moves.
/// With `full`, as `whatif --full` adds it, also a full replan beside it; else how to see one when
/// the proposal stays far above the bound.
[[nodiscard]] std::string proposal_text(const json::Value& proposal);

}  // namespace tapas::ctl
