#pragma once

#include "tests/detect/rules.h"
#include "tests/detect/trace.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tapas::daemon::testing {

/// How a rule did on one trace.
struct Outcome {
  std::uint32_t false_calls = 0;  ///< before the fault, or where there is none
  bool false_names = false;       ///< one of them named ranks
  std::uint64_t quiet_steps = 0;  ///< they were made in
  bool spoke = false;             ///< after the fault began
  /// The first call after that was the right one, and all culprits, nobody else, were named.
  bool right = false;
  bool victim = false;      ///< after that a rank was named that is not at fault
  std::uint64_t delay = 0;  ///< steps from the first slow one to the first call
  std::string first_wrong;  ///< what it said, for people
};

/// Runs the rules side by side over the trace of `spec`: an Outcome for each.
using Rules = std::vector<std::function<std::unique_ptr<Rule>(const Trace&)>>;
[[nodiscard]] std::vector<Outcome> judge(const TraceSpec& spec, const Rules& rules);

/// Outcomes of many traces.
class Tally {
 public:
  void add(const Outcome& outcome);
  [[nodiscard]] std::size_t traces() const { return traces_; }
  [[nodiscard]] double right_percent() const { return percent(right_); }
  [[nodiscard]] double wrong_percent() const { return percent(spoke_ - right_); }
  [[nodiscard]] double missed_percent() const { return percent(traces_ - spoke_); }
  [[nodiscard]] double victim_percent() const { return percent(victims_); }
  /// Quantile of the steps until the right call; 0 when there is none.
  [[nodiscard]] double delay(double quantile) const;
  [[nodiscard]] std::uint64_t quiet_steps() const { return quiet_steps_; }
  [[nodiscard]] std::uint64_t false_calls() const { return false_calls_; }
  [[nodiscard]] std::uint64_t false_names() const { return false_names_; }
  [[nodiscard]] double false_per_million() const;

 private:
  [[nodiscard]] double percent(std::size_t count) const;

  std::size_t traces_ = 0;
  std::size_t spoke_ = 0;
  std::size_t right_ = 0;
  std::size_t victims_ = 0;
  std::uint64_t quiet_steps_ = 0;
  std::uint64_t false_calls_ = 0;
  std::uint64_t false_names_ = 0;
  std::vector<std::uint64_t> delays_;
};

/// Calls `work` with 0 to count - 1 on two threads; `done` is called under a lock after each.
void for_each_of(std::size_t count, const std::function<void(std::size_t)>& work,
                 const std::function<void(std::size_t)>& done);

}  // namespace tapas::daemon::testing
