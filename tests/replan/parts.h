#pragma once

#include "solver/cost/plan_evaluator.h"
#include "solver/model/job.h"
#include "solver/replan/micro_replan.h"

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tapas::solver::testing {

/// The pieces that the step time of a plan of whole nodes is made of, one by one: what the oracle
/// and the annealer add up. Units are the nodes in use and the others, in the cluster's order.
class Parts {
 public:
  static constexpr std::uint32_t kNone = ~0U;

  struct Unit {
    NodeId node;
    std::uint32_t type = 0;
    std::uint32_t home = kNone;  ///< replica * stages + stage in the current plan
    double slowdown = 1;
    double inside = 1;
    bool drained = false;
    bool pinned = false;
  };
  struct Stage {
    double forward_s = 0;
    double backward_s = 0;
    double params = 0;
    bool fits = false;
    [[nodiscard]] double total_s() const { return forward_s + backward_s; }
  };
  struct Delay {
    double forward_s = 0;
    double backward_s = 0;
  };

  /// Both must outlive it. Requires 1f1b without interleaving and every position a whole node.
  Parts(const Job& job, const ReplanRequest& request);

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] std::uint32_t replicas() const { return replicas_; }
  [[nodiscard]] std::uint32_t stages() const { return stages_; }
  [[nodiscard]] std::uint32_t layers() const { return layers_; }
  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  /// The unit of a position of the current plan.
  [[nodiscard]] std::uint32_t unit_at(std::uint32_t replica, std::uint32_t stage) const {
    return at_[replica * stages_ + stage];
  }

  /// A range of layers on a unit with `held` microbatches in flight, recomputing the least that
  /// fits, or what the replica recomputes now where the runtime cannot change that.
  [[nodiscard]] Stage stage(std::uint32_t unit, std::uint32_t replica, LayerRange range,
                            std::uint32_t held);
  /// Whether the unit has room for these layers beside what it holds until the switch is decided.
  [[nodiscard]] bool can_receive(std::uint32_t unit, std::uint32_t replica, LayerRange range) const;
  /// Between consecutive stages, the cut before `layer`.
  [[nodiscard]] Delay delay(std::uint32_t unit, std::uint32_t next, std::uint32_t layer);
  /// Of a stage's ring over these units, one per replica, as one of them sees it.
  [[nodiscard]] Ring ring(std::span<const std::uint32_t> column);
  [[nodiscard]] StepTail tail(const Ring& ring, std::uint32_t unit) const;
  /// Of what a replica's row takes from its current devices, the pause apart. Rows share no NIC in
  /// a switch: a node sends from its old row and receives for its new one.
  [[nodiscard]] double transfer_s(std::uint32_t replica, std::span<const std::uint32_t> row,
                                  std::span<const std::uint32_t> cuts);

  /// To bring one layer of a replica to a unit, by that unit's NICs alone.
  [[nodiscard]] double arrival_s(std::uint32_t replica, std::uint32_t unit,
                                 std::uint32_t layer) const;

  /// `rows`: units, [replica][stage]; `cuts` likewise, first layers.
  [[nodiscard]] Plan plan(const std::vector<std::vector<std::uint32_t>>& rows,
                          const std::vector<std::vector<std::uint32_t>>& cuts,
                          const std::vector<std::uint32_t>& microbatches);

 private:
  /// 0 where the unit runs the layer for this replica already.
  [[nodiscard]] double bytes(std::uint32_t replica, std::uint32_t unit, std::uint32_t layer) const;
  [[nodiscard]] double nics_bytes_per_s(std::uint32_t unit) const {
    const NodeType& type = job_.cluster.node_types[units_[unit].type];
    return type.nic_bytes_per_s * type.nics;
  }

  const Job& job_;
  const ReplanRequest& request_;
  PlanEvaluator evaluator_;
  std::uint32_t replicas_;
  std::uint32_t stages_;
  std::uint32_t layers_;
  std::uint16_t width_;
  std::vector<Unit> units_;
  std::vector<Position> positions_;  ///< [unit]
  std::vector<std::uint32_t> at_;
  std::vector<const LayerTable*> tables_;  ///< [node type]
  std::vector<MemoryRule> rules_;          ///< likewise
  Plan column_;                            ///< one stage, for ring()
  /// Bytes that layer l of replica r brings to a unit that does not run it: all of it, or what
  /// replicas do not share where the unit held the layer for another.
  std::vector<double> full_bytes_;       ///< [layer]
  std::vector<double> share_bytes_;      ///< [layer]
  std::vector<std::uint32_t> stage_of_;  ///< [replica * layers + layer], current
  std::vector<LayerRange> held_;         ///< [unit], current; empty for spares
  std::vector<Link> links_;              ///< [unit * units + next]; empty when too many
  std::vector<double> out_, in_;         ///< [unit]
};

}  // namespace tapas::solver::testing
