#pragma once

#include "agent/twin/fleet.h"
#include "agent/twin/report.h"
#include "agent/twin/virtual_job.h"
#include "base/result.h"
#include "solver/model/job.h"

#include <sstream>
#include <string>
#include <string_view>

namespace tapas::twin {

/// A run of the emulated cluster: the loop over daemon, job, operator's commands and signals.
class Session {
 public:
  /// Everything must outlive this. `signal_fd` becomes readable when the run shall end.
  Session(const solver::Job& model, VirtualJob& job, Fleet& fleet, Report& report, int signal_fd,
          bool quiet);

  /// Until the job's last step, a signal or `quit`. kDenied when the daemon rejects every agent
  /// before the job could start.
  [[nodiscard]] Result<void> run();

  /// Carries out one line of the operator; the answer is one line too.
  [[nodiscard]] std::string command(std::string_view line);

 private:
  void read_commands();
  /// "slow", "link" and "path", whose operands come next; the answer to the operator.
  [[nodiscard]] std::string add_fault(std::string_view verb, std::istringstream& words);
  [[nodiscard]] std::string kill_rank(const std::string& number);
  void collect(agent::TimePoint now);
  void show_progress();

  const solver::Job& model_;
  VirtualJob& job_;
  Fleet& fleet_;
  Report& report_;
  const int signal_fd_;
  const bool quiet_;
  bool quit_ = false;
  bool commands_open_ = true;
  std::string typed_;
  double last_step_s_ = 0;
  std::string faults_;
};

}  // namespace tapas::twin
