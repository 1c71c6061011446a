#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "ctl/lines.h"
#include "daemon/recording/replay.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::ctl {

/// A line of the journal, or orders to agents, as the replayed core gives it.
struct ReplayedLine {
  std::int64_t wall_ns = 0;
  std::string job;
  std::string kind;
  std::string node;
  std::string sentence;
  bool same = true;  ///< the daemon did all that the core did with it
};

struct ReplayedRecording {
  daemon::recording::Replayed outcome;
  std::vector<ReplayedLine> lines;
};

/// What tapasd recorded, decided once more by a core of this program. Errors name file and line.
[[nodiscard]] Result<ReplayedRecording> replay_recording(const std::string& path,
                                                         const ReplayProgress& progress);

[[nodiscard]] std::string recording_text(const ReplayedRecording& replayed);
/// `tapas.replay/1`, with `lines` and `first_difference` instead of `episodes`.
[[nodiscard]] json::Value recording_json(const ReplayedRecording& replayed);

}  // namespace tapas::ctl
