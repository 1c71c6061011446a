#pragma once

#include "agent/health/node_health.h"
#include "base/result.h"

#include <string>
#include <string_view>

namespace tapas::agent::health {

/// A reading as bytes, from a child process to the program that started it: the same build on the
/// same machine, so there is no version, and times of the steady clock keep their meaning.
[[nodiscard]] std::string encode(NodeHealth node);

/// kInvalid when the bytes are no reading, as a child may be damaged by the driver that it called.
[[nodiscard]] Result<NodeHealth> decode(std::string_view bytes);

}  // namespace tapas::agent::health
