#pragma once

#include "base/json/json.h"
#include "ctl/inspector.h"
#include "ctl/replay.h"

#include <string>
#include <vector>

namespace tapas::ctl {

/// [communicator]: what the detector says about its ranks. Who may itself have waited elsewhere is
/// not blamed: its verdict is `unknown`.
using InspectorEpisodes = std::vector<std::vector<Episode>>;
[[nodiscard]] InspectorEpisodes replay_inspector(const std::vector<Communicator>& communicators,
                                                 const ReplayProgress& progress);

[[nodiscard]] std::string inspector_text(const std::vector<Communicator>& communicators,
                                         const InspectorEpisodes& episodes);
/// `tapas.replay/1`, with `communicators` instead of `ranks` and `steps`.
[[nodiscard]] json::Value inspector_json(const std::vector<Communicator>& communicators,
                                         const InspectorEpisodes& episodes);

}  // namespace tapas::ctl
