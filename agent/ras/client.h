#pragma once

#include "agent/ras/report.h"
#include "base/endpoint.h"
#include "base/result.h"

#include <chrono>
#include <cstddef>

namespace tapas::agent::ras {

struct Limits {
  /// For everything but the look-up of a host name, which the system's resolver bounds. NCCL itself
  /// waits up to 5 s for ranks that do not answer.
  std::chrono::milliseconds deadline{10'000};
  /// For the greeting. All processes of a node share the port, so a connection may land on one that
  /// hangs; the next one may not.
  std::chrono::milliseconds greeting{1'000};
  std::size_t max_bytes = kMaxReportBytes;
};

/// Asks for a verbose status, as JSON where the other side has it, else as text, and reads it.
/// Blocks the caller until the deadline at most; opens no thread and leaves no connection.
/// Errors: kUnavailable (nobody listens, or the connection broke), kTimeout (no answer in time),
/// kInvalid (an answer that is too large or not RAS's).
[[nodiscard]] Result<Report> query(const HostPort& address, const Limits& limits = {});

}  // namespace tapas::agent::ras
