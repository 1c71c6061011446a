#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "solver/model/cluster.h"
#include "solver/model/cluster_state.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::twin {

/// Something of a node that takes longer.
struct Fault {
  enum class Kind : std::uint8_t {
    kCompute,  ///< of the node or of one device
    kSend,     ///< out of the node's NICs
    kReceive,  ///< into them
    kInside,   ///< between the node's devices
    kPath,     ///< from `node` to the node `to`, whatever the NICs do; not the way back
    kInput,    ///< the data loader of the node's ranks, or of one: each step's first batch is late
  };
  Kind kind = Kind::kCompute;
  NodeId node;
  NodeId to;                            ///< of kPath
  std::optional<std::uint32_t> device;  ///< of kCompute and kInput; none = the whole node
  double amount = 1.0;                  ///< times as long; of kInput, seconds
  std::uint64_t from_step = 0;
  double from_s = 0;  ///< job time; the fault begins when both step and time have come
  std::optional<std::uint64_t> until_step;  ///< first step without the fault
};

/// What its amount is called in a fault's text and in the report: "slowdown", "send", ...
[[nodiscard]] std::string_view amount_key(Fault::Kind kind);

/// Reads "node=NAME slowdown=F [device=K]", "node=NAME input_s=S [device=K]", "node=NAME send=F"
/// (or receive=F, inside=F) or "from=NAME to=NAME path=F", each with [step=N] [at_s=S]
/// [until_step=N].
[[nodiscard]] Result<Fault> parse_fault(std::string_view text, const solver::Cluster& cluster);

/// The faults of a run and what they do to a step.
class Faults {
 public:
  /// `cluster` must outlive this.
  explicit Faults(const solver::Cluster& cluster) : cluster_(cluster) {}

  void add(const Fault& fault) { faults_.push_back(fault); }
  /// Ends all faults that have begun of a node and of the paths from and to it, from the next step
  /// on; their number.
  std::size_t heal(NodeId node, std::uint64_t step, double job_time_s);

  /// The faults that act on a step beginning now.
  [[nodiscard]] std::vector<Fault> acting(std::uint64_t step, double job_time_s) const;
  /// What they make of the hardware; several faults of one thing multiply.
  [[nodiscard]] solver::ClusterState state(const std::vector<Fault>& acting) const;
  /// How long each rank waits for its batch, seconds by RankId; empty = nobody does.
  [[nodiscard]] std::vector<double> input_s(const std::vector<Fault>& acting) const;

 private:
  [[nodiscard]] std::vector<RankId> ranks_of(const Fault& fault) const;

  const solver::Cluster& cluster_;
  std::vector<Fault> faults_;
};

}  // namespace tapas::twin
