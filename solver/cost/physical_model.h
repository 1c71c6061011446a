#pragma once

#include "solver/cost/cost_model.h"

#include <vector>

namespace tapas::solver {

/// What the hardware does: efficiency curves and memory passes per operator or their measured
/// times, NCCL's collectives, asynchronous sends.
class PhysicalModel final : public CostModel {
 public:
  explicit PhysicalModel(const Job& job);
  [[nodiscard]] LayerTimes layer_times(std::uint32_t layer,
                                       const Sharding& sharding) const override;
  [[nodiscard]] Hop hop(const Link& link, const Sharding& sharding, double bytes,
                        std::uint32_t stages) const override;
  [[nodiscard]] StepTail step_tail(const Ring& ring, const Sharding& sharding) const override;

 private:
  /// Compute waits this long while a TP group adds up its partial results of `bytes`.
  [[nodiscard]] double reduce_s(double bytes, const Sharding& sharding) const;

  const Job& job_;
  std::vector<double> input_bytes_;  ///< largest input of each operator
  std::vector<CommTable> comm_;      ///< per node type
};

}  // namespace tapas::solver
