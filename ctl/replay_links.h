#pragma once

#include "base/json/json.h"
#include "ctl/trace.h"
#include "daemon/core/link_watch.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapas::ctl {

/// A part of the network found slow, and when it was over.
struct LinkEpisode {
  std::uint64_t verdict_step = 0;
  daemon::LinkFault fault;
  std::string sentence;
  std::optional<std::uint64_t> end_step;
};

/// What the daemon would have said about the transfers, as it said it: no look-ahead. All nodes
/// count as being under one switch.
[[nodiscard]] std::vector<LinkEpisode> replay_links(const LinkTrace& trace,
                                                    const ReplayProgress& progress);

[[nodiscard]] std::string links_text(const LinkTrace& trace,
                                     const std::vector<LinkEpisode>& episodes);
/// `tapas.replay/1`, with `nodes` instead of `ranks`.
[[nodiscard]] json::Value links_json(const LinkTrace& trace,
                                     const std::vector<LinkEpisode>& episodes);

}  // namespace tapas::ctl
