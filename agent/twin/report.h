#pragma once

#include "agent/twin/virtual_job.h"
#include "base/result.h"
#include "solver/model/cluster.h"

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tapas::twin {

/// The truth of a run: one JSON line per step and per switch for whoever compares it with what the
/// daemon believed, and medians for people. README.md has the lines' keys.
class Report {
 public:
  /// `cluster` must outlive this.
  explicit Report(const solver::Cluster& cluster) : cluster_(cluster) {}

  /// Also writes to a file from now on.
  [[nodiscard]] Result<void> open(const std::string& path);

  /// `wall_ns`: when its records went to the agents, since 1970.
  void add(const FinishedStep& step, std::int64_t wall_ns);
  void add(const FinishedSwitch& change);

  /// "node-037 x1.6", "node-037 send x4", "node-003 to node-010 x8" of each acting fault, empty
  /// when healthy.
  [[nodiscard]] std::string describe(const std::vector<Fault>& faults) const;
  /// Steps and medians by epoch and faults, and the switches, as lines of text.
  [[nodiscard]] std::string summary() const;

 private:
  void write(const std::string& line);
  [[nodiscard]] const std::string& name(NodeId node) const;
  [[nodiscard]] std::string part_of(const Fault& fault) const;

  const solver::Cluster& cluster_;
  std::ofstream file_;
  /// Plain steps by epoch and faults, in order of appearance.
  std::vector<std::pair<std::pair<std::uint64_t, std::string>, std::vector<double>>> groups_;
  std::vector<FinishedSwitch> switches_;
};

}  // namespace tapas::twin
