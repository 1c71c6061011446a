#pragma once

#include "base/json/json.h"

#include <string>

/// Decisions (tapas.decisions/1) for people.
namespace tapas::ctl {

/// The sentence, a table of step times before and after with their bound, how long each stage of
/// the loop took, and the remaining evidence.
[[nodiscard]] std::string decision_text(const json::Value& decision);

}  // namespace tapas::ctl
