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

  /// Parameters, gradients and optimizer state of the layers in `range`. `node_type`, an index
  /// into Cluster::node_types, matters for profiled operators only.
  [[nodiscard]] double state_bytes(const Plan& plan, LayerRange range,
                                   std::uint32_t node_type = 0) const;
  /// A stage that holds `range` and `held` microbatches at once.
  [[nodiscard]] double stage_bytes(const Plan& plan, LayerRange range, std::uint32_t held,
                                   std::uint32_t node_type = 0) const;

 private:
  struct Bytes {
    double params = 0;
    double stash = 0;
    double scratch = 0;
  };
  /// One device's part of the operator at `index`, as profiled or as its kind says.
  [[nodiscard]] Bytes of_operator(const Plan& plan, std::size_t index, double width,
                                  std::uint32_t node_type) const;

  const Job& job_;
  std::vector<double> entering_;  ///< [layer]: activation bytes that come from earlier layers
  std::vector<double> fed_;       ///< [node index]: its largest input
};

}  // namespace tapas::solver
