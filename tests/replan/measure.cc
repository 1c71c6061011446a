#include "tests/replan/measure.h"

#include "base/check.h"
#include "solver/replan/local_search.h"
#include "tests/replan/annealing.h"
#include "tests/replan/value.h"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <limits>

namespace tapas::solver::testing {
namespace {

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Timed timed_with(const Instance& instance, ReplanLimits limits, double limit_ms,
                 const Mechanisms& mechanisms = {}) {
  Timed timed;
  const CpuTimer timer;
  limits.time_left_s = [&] { return (limit_ms - timer.ms()) / 1e3; };
  auto proposal = micro_replan(instance.job, instance.request, limits, mechanisms);
  timed.ms = timer.ms();
  TAPAS_CHECK(proposal.has_value(), "{}: {}", instance.name,
              proposal ? "" : proposal.error().message);
  timed.proposal = *std::move(proposal);
  return timed;
}

}  // namespace

CpuTimer::CpuTimer() : start_s_(thread_cpu_s()) {}
double CpuTimer::ms() const { return (thread_cpu_s() - start_s_) * 1e3; }

Timed timed_replan(const Instance& instance, double ms, std::uint64_t seed) {
  return timed_replan(instance, ms, seed, Mechanisms());
}

Timed timed_replan(const Instance& instance, double ms, std::uint64_t seed,
                   const Mechanisms& mechanisms) {
  ReplanLimits limits;
  limits.evaluations = std::numeric_limits<std::uint64_t>::max();
  limits.seed = seed;
  return timed_with(instance, limits, ms, mechanisms);
}

Timed first_answer(const Instance& instance, std::uint64_t seed) {
  constexpr double kPlenty = 50;
  const Timed whole = timed_replan(instance, kPlenty, seed);
  const auto pair = std::find_if(whole.proposal.tried.begin(), whole.proposal.tried.end(),
                                 [](const Tried& tried) { return tried.what == "pair"; });
  ReplanLimits limits;
  limits.seed = seed;
  // The same way again, no further than that.
  if (pair != whole.proposal.tried.end()) {
    limits.evaluations = std::max<std::uint64_t>(pair->evaluations, 1);
  }
  return timed_with(instance, limits, 1e3 * kPlenty);
}

Plan anneal_for(const Instance& instance, double temperature, double ms) {
  const CpuTimer timer;
  return anneal(instance.job, instance.request, temperature, 1, [&] { return timer.ms() / ms; });
}

Plan best_anneal(const Instance& instance, double ms) {
  Judge judge(instance.job, instance.request);
  Plan best = instance.request.current;
  for (const double temperature : kTemperatures) {
    Plan plan = anneal_for(instance, temperature, ms);
    if (better(judge.value(plan), judge.value(best))) {
      best = std::move(plan);
    }
  }
  return best;
}

std::vector<Rival> rivals(double ms) {
  return {{"greedy shifts",
           [ms](const Instance& instance) {
             const CpuTimer timer;
             return greedy_shifts(instance.job, instance.request, [&] { return timer.ms() >= ms; });
           }},
          {"rows split anew",
           [](const Instance& instance) { return split_anew(instance.job, instance.request); }}};
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

}  // namespace tapas::solver::testing
