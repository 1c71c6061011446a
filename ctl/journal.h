#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "ctl/trace.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::ctl {

struct JournalLine {
  std::int64_t wall_ns = 0;  ///< since 1970
  std::string job;
  std::string kind;
  std::string node;
  std::string sentence;
  json::Value evidence = json::Value::object();
};

/// The daemon's journal, as far as episodes show in it.
struct Journal {
  std::vector<JournalLine> lines;  ///< verdicts, recoveries and new sessions, in their order
  std::uint64_t events = 0;        ///< all
  std::int64_t first_ns = 0;       ///< times of the first and last event
  std::int64_t last_ns = 0;
};

/// `tapas.events/1`, or its events one per line. Errors name file and line or event.
[[nodiscard]] Result<Journal> read_events(std::string_view name, std::string_view text,
                                          const ReplayProgress& progress);
/// The store of a daemon, which may be running; changes nothing.
[[nodiscard]] Result<Journal> read_store(const std::string& path, const ReplayProgress& progress);

}  // namespace tapas::ctl
