#pragma once

#include "base/result.h"
#include "daemon/core/event.h"
#include "daemon/jobs.h"
#include "wire/message_codec.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapas::daemon {

/// Turns the core's messages into frames. Keeps the JSON text of the last plans, cut into pieces,
/// so that a fleet that needs one plan costs one encoding. Not thread-safe.
class Outbound {
 public:
  explicit Outbound(JobMap jobs) : jobs_(std::move(jobs)) {}

  /// What WELCOME tells agents from now on: over how long to spread their return.
  void spread_reconnects(double spread_s) { reconnect_spread_s_ = spread_s; }

  /// Calls `emit` for each message in order. An error when a plan cannot be sent at all.
  [[nodiscard]] Result<void> encode(const SendToAgent& send,
                                    const std::function<void(const wire::ToAgent&)>& emit);

 private:
  struct CutPlan {
    std::string job;
    Epoch epoch;
    std::vector<std::string> pieces;
  };
  Result<const CutPlan*> cut(const PlanMessage& message);

  const JobMap jobs_;
  double reconnect_spread_s_ = 0;
  std::deque<CutPlan> recent_;
};

}  // namespace tapas::daemon
