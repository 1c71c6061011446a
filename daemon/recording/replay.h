#pragma once

#include "daemon/recording/format.h"

#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace tapas::daemon::recording {

/// An action of the daemon, and what the core does in its place now; null = nothing.
struct Difference {
  std::uint64_t line = 0;  ///< of the file, from 1
  std::int64_t wall_ns = 0;
  json::Value expected;
  json::Value seen;
};

struct Replayed {
  std::string version;  ///< of the program that recorded
  std::uint64_t events = 0;
  std::uint64_t differing = 0;      ///< events after which the core did something else
  std::optional<Difference> first;  ///< where that began
  std::int64_t first_ns = 0;        ///< wall clock of the first and the last event
  std::int64_t last_ns = 0;
  /// Why it ended; nothing when no line says so: the daemon was killed, or runs, or the disk
  /// refused.
  std::optional<std::string> end;
  bool cut = false;  ///< in the middle of its last line, which does not count
};

/// Told of every event and what the core does now.
using OnStep = std::function<void(const Step& step, const std::vector<Action>& actions, bool same)>;

/// Tells a fresh core what the daemon's was told, at the times it was told, and compares what it
/// does. Answers of the solver are events, so nothing is searched anew. Errors name the line.
[[nodiscard]] Result<Replayed> replay(std::istream& in, const OnStep& on_step);

}  // namespace tapas::daemon::recording
