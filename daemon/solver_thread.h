#pragma once

#include "base/queue.h"
#include "daemon/core/event.h"
#include "daemon/jobs.h"

#include <functional>
#include <stop_token>
#include <thread>
#include <variant>

namespace tapas::daemon {

/// Solves off the core thread, one request after the other; a replan within a few hundredths of a
/// second. Its destructor asks a running solve to stop and waits for it.
class SolverThread {
 public:
  /// Receives PlanSolved and ReplanSolved; called on the solver thread.
  using Deliver = std::function<void(Event)>;

  SolverThread(JobMap jobs, Deliver deliver);
  ~SolverThread();
  SolverThread(const SolverThread&) = delete;
  SolverThread& operator=(const SolverThread&) = delete;

  /// False when too many requests wait.
  [[nodiscard]] bool request(RequestPlan request) { return queue_.push(std::move(request)); }
  [[nodiscard]] bool request(RequestReplan request) { return queue_.push(std::move(request)); }

 private:
  Event solve(const RequestPlan& request, const std::stop_token& stop) const;
  Event solve(const RequestReplan& request, const std::stop_token& stop) const;
  void run(const std::stop_token& stop);

  const JobMap jobs_;
  const Deliver deliver_;
  BoundedQueue<std::variant<RequestPlan, RequestReplan>, WhenFull::kRefuse> queue_{256};
  std::jthread thread_;
};

}  // namespace tapas::daemon
