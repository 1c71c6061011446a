#pragma once

#include "base/json/json.h"
#include "ctl/journal.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapas::ctl {

/// A verdict that the daemon gave, and what it said about it since.
struct ToldEpisode {
  JournalLine verdict;
  std::optional<std::int64_t> since_ns;  ///< first slow step
  std::vector<JournalLine> later;        ///< other slowdowns of the node
  std::optional<JournalLine> end;
};

/// The episodes that the journal tells of; nothing is judged anew, as it holds no steps.
[[nodiscard]] std::vector<ToldEpisode> episodes_of(const Journal& journal);

[[nodiscard]] std::string told_text(const Journal& journal,
                                    const std::vector<ToldEpisode>& episodes);
/// `tapas.replay/1`, with `events` and times instead of `ranks` and `steps`.
[[nodiscard]] json::Value told_json(const Journal& journal,
                                    const std::vector<ToldEpisode>& episodes);

}  // namespace tapas::ctl
