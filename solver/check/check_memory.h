#pragma once

#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapas::solver {

/// Bytes on one device, straight from the graph: the sentences of docs/cost-model.md, section
/// "Memory", once more. Kept apart from solver/cost on purpose.
class MemoryCheck {
 public:
  /// `job` must outlive it.
  explicit MemoryCheck(const Job& job);

  /// How many parameters of the layers in `range` each device of a group at `position` has.
  [[nodiscard]] double params(const Position& position, LayerRange range) const;
  /// Parameters, gradients and optimizer state of these.
  [[nodiscard]] double state_bytes(const Plan& plan, const Position& position,
                                   LayerRange range) const;
  /// A stage at `position` that holds `range` and `held` microbatches at once, `recomputed` per
  /// layer of the model.
  [[nodiscard]] double stage_bytes(const Plan& plan, const Position& position,
                                   const std::vector<bool>& recomputed, LayerRange range,
                                   std::uint32_t held) const;

 private:
  struct Bytes {
    double params = 0;
    double stash = 0;
    double scratch = 0;
  };
  /// One device's part of the operator at `index`, as profiled or as its kind says.
  [[nodiscard]] Bytes of_operator(const Position& position, bool sequence_parallel,
                                  std::size_t index) const;

  const Job& job_;
  std::vector<std::size_t> first_node_;  ///< [layer], and the number of nodes
  std::vector<double> entering_;  ///< [layer]: activation bytes that come from earlier layers
  std::vector<double> fed_;       ///< [node index]: its largest input
};

}  // namespace tapas::solver
