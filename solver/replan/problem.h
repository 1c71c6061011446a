#pragma once

#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/cost/stage_fit.h"
#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace tapas::solver {

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// A device group that a stage may run on, with what was measured of it.
struct Unit {
  /// The whole group first, then what is left when its slowest devices stand idle; what a stage
  /// runs on now is one of them.
  struct Width {
    Position position;
    std::uint32_t shard = 0;      ///< index into Problem::shards()
    double slowdown = 1;          ///< of its slowest device
    double send_bytes_per_s = 0;  ///< of one device, out of the node
    double receive_bytes_per_s = 0;
    bool at_home = false;  ///< exactly what a stage runs on now
    /// Of a device: so many fit beside what it holds during a switch, whatever they are.
    double arriving_params = 0;
  };
  std::vector<Width> widths;
  std::uint32_t node = 0;
  std::uint32_t home = kNone;  ///< its place in the current plan, replica * stages + stage
  bool drained = false;
  bool pinned = false;  ///< stays at home with its layers, flags and devices
};

/// A stage on a unit: one microbatch, links apart.
struct StageTime {
  double forward_s = 0;
  double backward_s = 0;
  double params = 0;        ///< of one device
  std::uint32_t width = 0;  ///< index into Unit::widths
  bool fits = false;        ///< also with what it holds now, during the switch

  [[nodiscard]] double total_s() const { return forward_s + backward_s; }
};

/// The local problem: who could run what how fast, in small numbers for a search that looks at
/// thousands of changes in milliseconds. What recomputation and which group width a stage takes is
/// not searched but follows, exactly, from its unit and its layers. Not for several threads; keeps
/// what it computed. All arguments must outlive it. Requires a plan without interleaving that
/// passes check_plan().
class Problem {
 public:
  Problem(PlanEvaluator& evaluator, const Plan& current, const ClusterState& state,
          const std::vector<bool>& pinned);

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const Plan& current() const { return current_; }
  [[nodiscard]] const ClusterState& state() const { return state_; }
  [[nodiscard]] std::uint32_t stages() const { return stages_; }
  [[nodiscard]] std::uint32_t replicas() const { return replicas_; }
  [[nodiscard]] std::uint32_t layers() const { return layers_; }
  /// All replicas must share one split.
  [[nodiscard]] bool tied() const { return !job_.capabilities.replica_splits; }

  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  [[nodiscard]] const Unit& unit(std::uint32_t index) const { return units_[index]; }
  /// Units of a node.
  [[nodiscard]] const std::vector<std::uint32_t>& units_of(std::uint32_t node) const {
    return units_of_[node];
  }
  /// Whether the unit may stand where the other stands now: same width, and devices that can reduce
  /// gradients together.
  [[nodiscard]] bool interchangeable(std::uint32_t a, std::uint32_t b) const;

  /// The first of the stages that may exchange nodes without a longer way for their rings.
  [[nodiscard]] std::uint32_t ring_group(std::uint32_t stage) const { return ring_group_[stage]; }

  /// How many times as long collectives of its group take.
  [[nodiscard]] double inside(std::uint32_t unit) const {
    return state_.node_links.empty() ? 1 : state_.node_links[units_[unit].node].inside;
  }
  /// Whether the two take equal times for all layers and equal layers fit them.
  [[nodiscard]] bool alike(std::uint32_t unit, std::uint32_t replica, std::uint32_t other,
                           std::uint32_t other_replica) const;

  struct Shard {
    const LayerTable* table = nullptr;
    MemoryRule rule;
    std::vector<LayerTimes> before;  ///< [layer]: sum over the layers before
    std::vector<double> params_before;
    double ring_bytes_per_s = 0;  ///< no ring of such groups is faster
    /// [held][first layer]: end of the longest range that fits without recomputation.
    std::vector<std::vector<std::uint32_t>> plain_reach;
  };
  [[nodiscard]] const std::vector<Shard>& shards() const { return shards_; }

  /// A stage of a replica that has so many microbatches. With fixed flags the replica's own count.
  [[nodiscard]] StageTime stage_time(std::uint32_t unit, std::uint32_t replica, std::uint32_t stage,
                                     std::uint32_t microbatches, LayerRange range);
  /// Sets the flags of the stage's layers.
  void mark(std::uint32_t unit, std::uint32_t replica, std::uint32_t stage,
            std::uint32_t microbatches, LayerRange range, std::vector<bool>& checkpoint);

  /// From one unit to another, before `layer`.
  [[nodiscard]] Hop hop(std::uint32_t from, std::uint32_t from_width, std::uint32_t to,
                        std::uint32_t to_width, std::uint32_t layer, bool forward) const;

  [[nodiscard]] StepTail tail(const Ring& ring, std::uint32_t shard) const;

  /// When the stage's gradients are reduced, with its last backward ending at `end_s`.
  [[nodiscard]] double synchronised_s(std::uint32_t unit, const StageTime& time,
                                      std::uint32_t replica, std::uint32_t stage,
                                      std::uint32_t microbatches, LayerRange range,
                                      const StepTail& tail, double end_s) {
    return job_.overlap_gradients
               ? overlapped_s(unit, time, replica, stage, microbatches, range, tail, end_s)
               : end_s + tail.sync_s(time.params);
  }

  /// Bytes of a layer that go to devices which have nothing of it, and to devices that held it for
  /// another replica.
  [[nodiscard]] double layer_bytes(std::uint32_t layer) const { return layer_bytes_[layer]; }
  [[nodiscard]] double own_share() const { return own_share_; }
  [[nodiscard]] std::uint32_t home_stage(std::uint32_t replica, std::uint32_t layer) const {
    return home_stage_[replica * layers_ + layer];
  }
  /// The stage of the current plan that the unit stands in; kNone for an idle one.
  [[nodiscard]] std::uint32_t home_stage_of(std::uint32_t unit) const {
    return units_[unit].home == kNone ? kNone : units_[unit].home % stages_;
  }
  /// The unit that stands at a place of the current plan.
  [[nodiscard]] std::uint32_t home_unit(std::uint32_t place) const { return home_unit_[place]; }
  /// Fast rates of a node for transfers of a switch.
  struct NodeRates {
    double send_bytes_per_s = 0;
    double receive_bytes_per_s = 0;
    double inside_bytes_per_s = 0;  ///< per device
  };
  [[nodiscard]] const NodeRates& rates(std::uint32_t node) const { return rates_[node]; }

 private:
  struct Fit {
    bool fits = false;
    double forward_s = 0;  ///< healthy
    double backward_s = 0;
    double forward_comm_s = 0;
    double backward_comm_s = 0;
    std::vector<StageFit::Recomputed> recomputed;
  };

  [[nodiscard]] double overlapped_s(std::uint32_t unit, const StageTime& time,
                                    std::uint32_t replica, std::uint32_t stage,
                                    std::uint32_t microbatches, LayerRange range,
                                    const StepTail& tail, double end_s);
  void add_units(const std::vector<bool>& pinned);
  void group_rings();
  [[nodiscard]] bool keeps_flags(const Unit& unit) const {
    return unit.pinned || !job_.capabilities.recompute;
  }
  /// `now`: those of them that a stage runs on.
  [[nodiscard]] Unit make_unit(NodeId node, std::vector<std::uint16_t> devices,
                               const std::vector<std::uint16_t>& now);
  [[nodiscard]] std::uint32_t shard_of(std::uint32_t node_type, std::uint16_t width);
  [[nodiscard]] const FabricTier& tier(std::uint32_t a, std::uint32_t b) const;
  /// Whether the unit's memory holds what it has and what arrives during the switch.
  [[nodiscard]] bool fits_switch(std::uint32_t unit, std::uint32_t replica, std::uint32_t width,
                                 LayerRange range) const;
  [[nodiscard]] bool fits_plainly(std::uint32_t shard, std::uint32_t held, LayerRange range);
  [[nodiscard]] const Fit& fit(std::uint32_t unit, std::uint32_t width, std::uint32_t replica,
                               std::uint32_t held, LayerRange range);

  PlanEvaluator& evaluator_;  ///< its tables and its cost model
  const Job& job_;
  const Plan& current_;
  const ClusterState& state_;
  std::uint32_t stages_;
  std::uint32_t replicas_;
  std::uint32_t layers_;
  std::map<Sharding, std::uint32_t> shard_ids_;
  std::vector<Shard> shards_;
  std::vector<Unit> units_;
  std::vector<std::vector<std::uint32_t>> units_of_;
  std::vector<std::uint32_t> tor_;  ///< [node]: equal names, equal numbers
  std::vector<std::uint32_t> pod_;
  std::vector<NodeRates> rates_;
  std::vector<std::uint32_t> ring_group_;  ///< [stage]
  std::vector<double> layer_bytes_;
  double own_share_ = 0;
  double optimizer_bytes_ = 0;  ///< per parameter, of one replica
  std::vector<std::uint32_t> home_stage_;
  std::vector<std::uint32_t> home_unit_;
  std::vector<LayerRange> home_;    ///< [place]: layers in the current plan
  std::vector<double> home_bytes_;  ///< [place]: of a device, parameters to optimizer state
  std::unordered_map<std::uint64_t, Fit> fits_;
  std::vector<bool> flags_;  ///< scratch
};

/// No plan of this shape on these nodes is faster in the measured state, in the cost model's
/// seconds: the search's bound for healthy devices, as slower ones only hurt, or the work over the
/// summed speed of the fastest units (docs/micro-replan.md).
[[nodiscard]] double lower_bound_s(const Problem& problem);

}  // namespace tapas::solver
