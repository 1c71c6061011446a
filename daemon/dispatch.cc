#include "daemon/dispatch.h"

#include "base/log/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace tapas::daemon {
namespace {

bool wants_attention(const std::string& kind) {
  constexpr std::array<std::string_view, 4> kKinds = {"agent_lost", "plan_failed", "store_failed",
                                                      "switch_aborted"};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

void log_event(const EventRow& row) {
  const std::string job = row.job.empty() ? "" : " job=" + row.job;
  const std::string node = row.node.empty() ? "" : " node=" + row.node;
  log::write(wants_attention(row.kind) ? log::Level::kWarning : log::Level::kInfo, "core",
             fmt::format("{} (event={}{}{})", row.sentence, row.kind, job, node));
}

}  // namespace

void Dispatch::carry_out(std::vector<Action> actions, std::optional<Net::TimePoint> cause) {
  cause_ = cause;
  for (Action& action : actions) {
    std::visit(*this, action);
  }
}

void Dispatch::operator()(SendToAgent& action) { net_.send(std::move(action), cause_); }

void Dispatch::operator()(RequestPlan& action) {
  const std::string job = action.job;
  if (!solver_.request(std::move(action))) {
    later_(PlanSolved{job, fail(ErrorCode::kUnavailable, "too many solves wait"), {}, 0});
  }
}

void Dispatch::operator()(RequestReplan& action) {
  const std::string job = action.job;
  const std::uint64_t request = action.request;
  if (!solver_.request(std::move(action))) {
    later_(ReplanSolved{job, request, fail(ErrorCode::kUnavailable, "too many solves wait"), 0});
  }
}

void Dispatch::operator()(StoreWrite& action) {
  for (const StoreRow& row : action.rows) {
    if (const auto* event = std::get_if<EventRow>(&row)) {
      log_event(*event);
    }
  }
  store_.write(std::move(action));
}

void Dispatch::operator()(OperatorReply& action) { api_.complete(action); }

void Dispatch::operator()(RejectedInput& action) {
  log::warning_limited("core", action.node + " " + action.reason,
                       fmt::format("refused what node {} sent: {} (reason={})", action.node,
                                   action.sentence, action.reason));
}

}  // namespace tapas::daemon
