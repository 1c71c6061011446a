#pragma once

#include "base/json/json.h"
#include "ctl/trace.h"
#include "daemon/core/attribution.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapas::ctl {

struct ReplayOptions {
  /// Each step time is the mean over the steps since the row before, not that of one step.
  bool averaged = false;
};

/// A verdict of the replay, and when what it is about was over.
struct Episode {
  std::uint64_t verdict_step = 0;
  daemon::Verdict verdict;  ///< RankId = index into Trace::ranks
  std::optional<std::uint64_t> end_step;
};

/// What the daemon's detector would have said about the run, as it said it: no look-ahead. Each
/// rank counts as a node of its own, all stages are taken to be planned equal.
[[nodiscard]] std::vector<Episode> replay(const Trace& trace, const ReplayOptions& options,
                                          const ReplayProgress& progress);

[[nodiscard]] std::string replay_text(const Trace& trace, const std::vector<Episode>& episodes);
/// `tapas.replay/1`.
[[nodiscard]] json::Value replay_json(const Trace& trace, const std::vector<Episode>& episodes);

}  // namespace tapas::ctl
