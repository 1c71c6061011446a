#pragma once

#include "daemon/control/api.h"
#include "daemon/core/event.h"
#include "daemon/net/net.h"
#include "daemon/solver_thread.h"
#include "daemon/store/store.h"

#include <functional>
#include <optional>
#include <vector>

namespace tapas::daemon {

/// Carries the core's actions to the parts that do them, in order. Core thread only.
class Dispatch {
 public:
  /// `later` feeds an event to the core after the current one.
  Dispatch(Net& net, Store& store, SolverThread& solver, Api& api, std::function<void(Event)> later)
      : net_(net), store_(store), solver_(solver), api_(api), later_(std::move(later)) {}

  /// `cause`: when the message came in that led to the actions; nothing for what was no message.
  void carry_out(std::vector<Action> actions, std::optional<Net::TimePoint> cause);

  void operator()(SendToAgent& action);
  void operator()(RequestPlan& action);
  void operator()(RequestReplan& action);
  void operator()(StoreWrite& action);
  void operator()(OperatorReply& action);
  void operator()(RejectedInput& action);

 private:
  Net& net_;
  Store& store_;
  SolverThread& solver_;
  Api& api_;
  const std::function<void(Event)> later_;
  std::optional<Net::TimePoint> cause_;
};

}  // namespace tapas::daemon
