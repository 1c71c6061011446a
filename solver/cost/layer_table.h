#pragma once

#include "solver/cost/cost_model.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <vector>

namespace tapas::solver {

/// One layer under a sharding, or a range of layers: times, and what one device holds.
struct LayerCost {
  LayerTimes times;
  double params = 0;
  double stash_bytes = 0;  ///< per microbatch in flight
  double input_bytes = 0;  ///< per microbatch in flight instead, when the layer is recomputed
  /// Beside what is stashed: the largest scratch of an operator, and gradient_bytes.
  double work_bytes = 0;
  /// Gradients of weights on their way to where they are summed up: in the parameters' type, of
  /// the largest layer and of every head (docs/cost-model.md, "Memory").
  double gradient_bytes = 0;
  double forward_flops = 0;       ///< whole group
  double flops = 0;               ///< forward and backward, whole group
  double wire_forward_bytes = 0;  ///< TP collectives, sent by one device
  double wire_backward_bytes = 0;

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

/// All layers of a job under one sharding, with the sums that a stage [first, last) needs in O(1).
/// Made in O(n log n) time and memory, however many layers differ.
class LayerTable {
 public:
  LayerTable(const Job& job, const CostModel& model, const Sharding& sharding);

  [[nodiscard]] const Sharding& sharding() const { return sharding_; }
  [[nodiscard]] std::uint32_t layers() const { return static_cast<std::uint32_t>(cost_.size()); }
  [[nodiscard]] const LayerCost& operator[](std::uint32_t layer) const { return cost_[layer]; }
  /// Equal layers have equal types; types count from 0.
  [[nodiscard]] std::uint32_t type(std::uint32_t layer) const { return type_[layer]; }
  [[nodiscard]] std::uint32_t types() const { return types_; }
  /// Some layer of the type.
  [[nodiscard]] std::uint32_t example(std::uint32_t type) const {
    return by_type_[type_begin_[type]];
  }
  /// Layers of `type` in the range, in O(log layers).
  [[nodiscard]] std::uint32_t count(std::uint32_t type, LayerRange range) const;
  /// The range as one: sums, but work_bytes and gradient_bytes as their comments say. O(1).
  [[nodiscard]] LayerCost sum(LayerRange range) const;
  /// Activation bytes that cross the cut before `layer`, whole group.
  [[nodiscard]] double cut_bytes(std::uint32_t layer) const { return cut_bytes_[layer]; }

 private:
  /// Largest of a range in O(1).
  class RangeMax {
   public:
    RangeMax() = default;
    explicit RangeMax(std::vector<double> values);
    [[nodiscard]] double operator()(LayerRange range) const;

   private:
    std::vector<std::vector<double>> of_;  ///< [k][l]: largest of the 2^k values from l on
  };

  void index_types();

  Sharding sharding_;
  std::vector<LayerCost> cost_;
  std::vector<LayerCost> before_;  ///< [l]: sum of layers 0..l-1
  std::vector<std::uint32_t> type_;
  std::vector<std::uint32_t> by_type_;     ///< layers, sorted by type, then by number
  std::vector<std::uint32_t> type_begin_;  ///< [type]: its first place in by_type_
  RangeMax scratch_;
  RangeMax body_gradients_;             ///< of layers without a head
  std::vector<double> head_gradients_;  ///< [l]: of layers 0..l-1 with one
  std::vector<double> cut_bytes_;
  std::uint32_t types_ = 0;
};

/// Bytes per cut, from the graph's edges: a tensor used twice behind a cut crosses it once.
[[nodiscard]] std::vector<double> cut_bytes(const Graph& graph);

}  // namespace tapas::solver
