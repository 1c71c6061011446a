#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "solver/model/cluster.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::twin {

/// A node or one of its devices that takes `slowdown` times as long to compute.
struct Fault {
  NodeId node;
  std::optional<std::uint32_t> device;  ///< none = the whole node
  double slowdown = 1.0;
  std::uint64_t from_step = 0;
  double from_s = 0;  ///< job time; the fault begins when both step and time have come
  std::optional<std::uint64_t> until_step;  ///< first step without the fault
};

/// Reads "step=30 node=node-037 slowdown=1.6 [device=K] [until_step=N] [at_s=S]".
[[nodiscard]] Result<Fault> parse_fault(std::string_view text, const solver::Cluster& cluster);

/// The faults of a run and what they do to a step.
class Faults {
 public:
  /// `cluster` must outlive this.
  explicit Faults(const solver::Cluster& cluster) : cluster_(cluster) {}

  void add(const Fault& fault) { faults_.push_back(fault); }
  /// Ends all faults of a node that have begun, from the next step on; their number.
  std::size_t heal(NodeId node, std::uint64_t step, double job_time_s);

  /// The faults that act on a step beginning now.
  [[nodiscard]] std::vector<Fault> acting(std::uint64_t step, double job_time_s) const;
  /// Slowdown per RankId; several faults of one device multiply.
  [[nodiscard]] std::vector<double> slowdown(const std::vector<Fault>& acting) const;

 private:
  const solver::Cluster& cluster_;
  std::vector<Fault> faults_;
};

}  // namespace tapas::twin
