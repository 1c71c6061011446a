#pragma once

#include "base/json/json.h"
#include "daemon/core/core.h"
#include "daemon/store/store.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// The JSON bodies of docs/operator-api.md.
namespace tapas::daemon {

/// `received` and `rejected`: counts since the start, by kind of record and by reason.
[[nodiscard]] json::Value status_json(const StatusView& status,
                                      const std::map<std::string, std::uint64_t>& received,
                                      const std::map<std::string, std::uint64_t>& rejected);
[[nodiscard]] json::Value plans_json(const std::vector<StoredPlan>& plans);
[[nodiscard]] json::Value decisions_json(const std::vector<StoredDecision>& decisions);
/// `last` is where the next request goes on: the last line's id, or `after` when there is none.
[[nodiscard]] json::Value events_json(const std::vector<StoredEvent>& events, std::int64_t after);
[[nodiscard]] json::Value proposal_json(const solver::Proposal& proposal, const solver::Job& job,
                                        const std::string& message);
[[nodiscard]] json::Value error_json(ErrorCode code, const std::string& message);

}  // namespace tapas::daemon
