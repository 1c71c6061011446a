#pragma once

#include "solver/replan/micro_replan.h"
#include "tests/replan/instances.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapas::solver {
struct Mechanisms;
}

/// The search and its rivals with a time limit. Time is processor time of the calling thread:
/// steadier than the clock on a shared machine.
namespace tapas::solver::testing {

class CpuTimer {
 public:
  CpuTimer();
  [[nodiscard]] double ms() const;

 private:
  double start_s_;
};

struct Timed {
  Proposal proposal;
  double ms = 0;
};

/// The search until the time is over. Aborts when it refuses the instance.
[[nodiscard]] Timed timed_replan(const Instance& instance, double ms, std::uint64_t seed = 1);
/// The same without some of its mechanisms.
[[nodiscard]] Timed timed_replan(const Instance& instance, double ms, std::uint64_t seed,
                                 const Mechanisms& mechanisms);
/// The search until its first two-stage answer stands: the widening "pair" is tried.
[[nodiscard]] Timed first_answer(const Instance& instance, std::uint64_t seed = 1);

[[nodiscard]] Plan anneal_for(const Instance& instance, double temperature, double ms);
/// The best of all start temperatures, each with the whole time.
[[nodiscard]] Plan best_anneal(const Instance& instance, double ms);

using Rival = std::pair<std::string, std::function<Plan(const Instance&)>>;
/// Greedy shifts with this limit, and splitting anew.
[[nodiscard]] std::vector<Rival> rivals(double ms);

/// The q-quantile; requires values.
[[nodiscard]] double quantile(std::vector<double> values, double q);

}  // namespace tapas::solver::testing
