#pragma once

#include "agent/probe/report.h"
#include "agent/probe/stream.h"
#include "base/endpoint.h"
#include "base/result.h"

#include <string>

namespace tapas::agent::probe {

/// Asks a listener for a probe and does it: first towards the listener, then from there. Blocks the
/// caller until `until` at most (but for the look-up of a name), opens no thread and leaves no
/// connection. Never sends more than `limits`, and gives up when more comes. Errors: kUnavailable,
/// kTimeout, kInvalid (it is no listener of ours), kDenied (it refuses, and why).
[[nodiscard]] Result<Report> probe(const HostPort& peer, const std::string& token,
                                   const Limits& limits, Clock::time_point until);

}  // namespace tapas::agent::probe
