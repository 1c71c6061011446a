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

/// The agents' side as the network sees it. Counts are since the start.
struct WireView {
  std::map<std::string, std::uint64_t> received;    ///< records by kind
  std::map<std::string, std::uint64_t> over_limit;  ///< messages dropped, by node
  // From taking a message to handing on its answer, over the last 10 to 20 s.
  std::uint64_t answers = 0;
  double answer_median_s = 0;
  double answer_p99_s = 0;
  double answer_max_s = 0;
};

/// `rejected`: counts since the start, by reason.
[[nodiscard]] json::Value status_json(const StatusView& status, const WireView& wire,
                                      const std::map<std::string, std::uint64_t>& rejected);
[[nodiscard]] json::Value plans_json(const std::vector<StoredPlan>& plans);
[[nodiscard]] json::Value decisions_json(const std::vector<StoredDecision>& decisions);
/// `last` is where the next request goes on: the last line's id, or `after` when there is none.
[[nodiscard]] json::Value events_json(const std::vector<StoredEvent>& events, std::int64_t after);
[[nodiscard]] json::Value proposal_json(const solver::Proposal& proposal, const solver::Job& job,
                                        const std::string& message);
[[nodiscard]] json::Value error_json(ErrorCode code, const std::string& message);

}  // namespace tapas::daemon
