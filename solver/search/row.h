#pragma once

#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/stage_fit.h"
#include "solver/model/job.h"

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

namespace tapas::solver {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A kind of device group that a stage may run on.
struct GroupKind {
  const LayerTable* table = nullptr;  ///< of the group's sharding
  MemoryRule rule;
  std::uint32_t pool = 0;          ///< which nodes it comes from
  std::uint32_t node_devices = 0;  ///< of such a node
  StepTail tail;                   ///< least any ring of such groups takes
  double near_s = 0;               ///< least one-way delay to a group in the same node
  double far_s = 0;                ///< and to a group in another
  double busy_s = 0;  ///< least that sending adds to forward and to backward, with 2 stages or more

  [[nodiscard]] std::uint32_t width() const { return table->sharding().width; }
};

/// The row of stages that every replica repeats: what is the same whatever its cuts and kinds.
struct RowProblem {
  Schedule schedule = Schedule::k1f1b;
  bool overlap_gradients = false;
  std::uint32_t replicas = 1;
  std::uint32_t microbatches = 1;     ///< of the replica that has most
  std::vector<GroupKind> kinds;       ///< that stages may choose from
  std::vector<std::uint32_t> budget;  ///< [pool]: devices that one row may take

  [[nodiscard]] std::uint32_t layers() const { return kinds.front().table->layers(); }
};

/// A choice for all stages.
struct Row {
  std::vector<std::uint32_t> cuts;   ///< first layer of each stage
  std::vector<std::uint32_t> kinds;  ///< of each stage

  [[nodiscard]] std::uint32_t stages() const { return static_cast<std::uint32_t>(cuts.size()); }
  [[nodiscard]] LayerRange range(std::uint32_t stage, std::uint32_t layers) const {
    return {cuts[stage], stage + 1 < cuts.size() ? cuts[stage + 1] : layers};
  }
  friend bool operator==(const Row&, const Row&) = default;
};

/// What one microbatch takes in the stages before some stage and on the links there.
struct Before {
  double forward_s = 0;
  double both_s = 0;  ///< there and back
};

/// Costs of stages of one problem, with the lower bounds that cuts are searched by. A stage is
/// known by the number of stages behind it. Keeps what it computed; not for several threads.
class RowCosts {
 public:
  explicit RowCosts(const RowProblem& problem);

  [[nodiscard]] const RowProblem& problem() const { return problem_; }

  /// The stage with the recomputation it needs; null when it cannot fit.
  [[nodiscard]] const StageFit* fit(std::uint32_t kind, std::uint32_t behind, LayerRange range);

  /// A lower bound on the step time of any row in which a stage of this kind with so many stages
  /// behind it holds `range`; docs/cost-model.md, "Bounds". Never falls when the range grows at
  /// either end.
  [[nodiscard]] double bound_s(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                               const Before& before);

  /// The same with the recomputation limit, so it may fall when the range grows.
  [[nodiscard]] double exact_bound_s(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                                     const Before& before);

  /// A lower bound on the step time of any row with so many stages on so many devices, from the
  /// mean of its stages' bounds, weighted by their devices.
  [[nodiscard]] double mixed_bound_s(std::uint32_t stages, std::uint32_t devices) const;

  /// Least time of one microbatch in the layers before `layer`, forward and backward, whatever
  /// kinds.
  [[nodiscard]] double least_before_s(std::uint32_t layer) const { return before_[layer].both_s; }
  /// The least with `hops` links before `layer`.
  [[nodiscard]] Before least_before(std::uint32_t layer, std::uint32_t hops) const;
  /// Least time that crossing so many links takes there and back, sending included.
  [[nodiscard]] double round_trips_s(std::uint32_t hops) const;
  /// What was before a stage and the stage itself, with recomputation and sending, are before the
  /// next; links apart.
  [[nodiscard]] Before after(const Before& before, const StageFit& fit, std::uint32_t kind) const;
  /// With so many links.
  [[nodiscard]] Before with_hops(const Before& before, std::uint32_t hops) const;

 private:
  [[nodiscard]] const StageFit* cached_fit(std::uint32_t kind, std::uint32_t behind,
                                           LayerRange range, bool limited);
  [[nodiscard]] double bound_with(std::uint32_t kind, std::uint32_t behind, const LayerCost& sum,
                                  LayerRange range, double backward_s, const Before& before) const;
  [[nodiscard]] double bound_of(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                                const Before& before, bool limited);

  const RowProblem& problem_;
  std::vector<Before> before_;  ///< [layer]: least
  double least_sync_s_ = 0;     ///< of any stage
  std::uint32_t near_in_a_row_ = 1;
  double near_s_ = 0;
  double far_s_ = 0;
  double busy_s_ = 0;
  /// Layers of one type are alike, so ranges are known by the types they hold, as a sum of random
  /// numbers. [kind][layer]: the sum over the layers before.
  std::vector<std::vector<std::uint64_t>> content_;
  struct Key {
    std::uint64_t content = 0;
    std::uint32_t kind = 0;
    std::uint32_t held = 0;
    bool limited = false;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>(key.content ^ (key.held * 0x9E3779B97F4A7C15U) ^
                                      (key.kind * 0xC2B2AE3D27D4EB4FU) ^ (key.limited ? 1 : 0));
    }
  };
  struct Known {
    bool fits = false;
    StageFit fit;
  };
  std::unordered_map<Key, Known, KeyHash> known_;
};

}  // namespace tapas::solver
