#include "daemon/solver_thread.h"

#include "base/parallel.h"
#include "daemon/core/answers.h"
#include "solver/cost/transfer_order.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

namespace tapas::daemon {
namespace {

using Clock = std::chrono::steady_clock;

/// Far below a step and the seconds that any switch pauses; enough for 16,384 devices.
constexpr double kReplanTimeS = 0.050;
/// For the answers that change less, of which only the price is wanted.
constexpr double kLesserTimeS = 0.020;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

SolverThread::SolverThread(JobMap jobs, Deliver deliver)
    : jobs_(std::move(jobs)),
      deliver_(std::move(deliver)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

SolverThread::~SolverThread() {
  thread_.request_stop();
  queue_.close();
}

void SolverThread::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto request = queue_.pop(std::chrono::milliseconds(1000));
    if (!request) {
      continue;
    }
    if (const auto* plan = std::get_if<RequestPlan>(&*request)) {
      deliver_(solve(*plan, stop));
    } else {
      deliver_(solve(std::get<RequestReplan>(*request), stop));
    }
  }
}

Event SolverThread::solve(const RequestPlan& request, const std::stop_token& stop) const {
  const auto job = jobs_.find(request.job);
  if (job == jobs_.end()) {
    return PlanSolved{request.job, fail(ErrorCode::kNotFound, "no job \"{}\"", request.job), {}, 0};
  }
  const auto start = Clock::now();
  solver::SolveOptions options;
  options.stop = stop;
  options.parallel_for = parallel_for;
  auto outcome = solver::solve(*job->second, options);
  PlanSolved answer{request.job, solver::Plan(), {}, seconds_since(start)};
  if (outcome) {
    answer.plan = std::move(outcome->plan);
    answer.summary = std::move(outcome->summary);
  } else {
    answer.plan = tl::unexpected(outcome.error());
  }
  return answer;
}

Event SolverThread::solve(const RequestReplan& request, const std::stop_token& stop) const {
  const auto job = jobs_.find(request.job);
  if (job == jobs_.end()) {
    return ReplanSolved{request.job, request.request,
                        fail(ErrorCode::kNotFound, "no job \"{}\"", request.job), 0};
  }
  const auto start = Clock::now();
  solver::ReplanLimits limits;
  limits.evaluations = std::numeric_limits<std::uint64_t>::max();
  limits.time_left_s = [start] { return kReplanTimeS - seconds_since(start); };
  limits.stop = stop;
  ReplanSolved answer{request.job,
                      request.request,
                      solver::micro_replan(*job->second, request.problem, limits),
                      0,
                      {}};
  if (answer.proposal) {
    limits.time_left_s = [then = Clock::now()] { return kLesserTimeS - seconds_since(then); };
    answer.lesser = lesser_answers(*job->second, request.problem, *answer.proposal, limits);
  }
  answer.solve_s = seconds_since(start);
  if (answer.proposal) {
    answer.proposal->transfers =
        solver::transfer_times(*job->second, answer.proposal->moves, request.problem.state);
  }
  return answer;
}

}  // namespace tapas::daemon
