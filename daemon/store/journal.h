#pragma once

#include "base/result.h"

#include <cstdint>
#include <functional>
#include <string>

namespace tapas::daemon {

/// A line of the journal as the operator API shows it; `evidence` is the text of a JSON object.
struct StoredEvent {
  std::int64_t id = 0;
  std::string job;
  std::string kind;
  std::string node;
  std::string sentence;
  std::string evidence;
  std::int64_t wall_ns = 0;
};

/// Gives every line of the journal in the store file, oldest first, with the share that is done.
/// Changes nothing; the daemon may be running. Errors name the file.
[[nodiscard]] Result<void> read_journal(
    const std::string& path, const std::function<void(const StoredEvent&, double done)>& line);

}  // namespace tapas::daemon
