#pragma once

#include "agent/probe/load.h"
#include "agent/probe/messages.h"
#include "agent/probe/stream.h"
#include "base/result.h"

namespace tapas::agent::probe {

/// One direction, seen from both of its ends.
struct Transfer {
  Sent sent;
  Received received;
};

/// When a load that begins now must be through, whatever the link does.
[[nodiscard]] Clock::time_point end_of(const Load& load);

/// Sends blocks for load.seconds, load.bytes at most, then a last one, and waits for what the other
/// end measured. Errors as those of Stream, with how far it came.
[[nodiscard]] Result<Transfer> send_load(Stream& stream, const Load& load, Clock::time_point until);

/// Receives them, measures, and says what it measured. kInvalid when more comes than was agreed, or
/// something else.
[[nodiscard]] Result<Received> receive_load(Stream& stream, const Load& load,
                                            Clock::time_point until);

}  // namespace tapas::agent::probe
