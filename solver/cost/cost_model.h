#pragma once

#include "solver/cost/links.h"
#include "solver/model/job.h"

#include <compare>
#include <cstdint>
#include <memory>

namespace tapas::solver {

/// How a layer is spread inside one TP group.
struct Sharding {
  std::uint32_t node_type = 0;  ///< index into Cluster::node_types
  std::uint16_t width = 1;      ///< devices of the TP group
  bool sequence_parallel = false;

  friend auto operator<=>(const Sharding&, const Sharding&) = default;
};

/// Seconds of one layer and one microbatch on a healthy device.
struct LayerTimes {
  double forward_s = 0;       ///< compute
  double backward_s = 0;      ///< compute, without recomputation
  double forward_comm_s = 0;  ///< TP collectives, paid again when the layer is recomputed
  double backward_comm_s = 0;

  friend bool operator==(const LayerTimes&, const LayerTimes&) = default;
};

/// What a stage adds once per step, by the parameters that one of its devices holds.
struct StepTail {
  double fixed_s = 0;      ///< gradient synchronisation, after the stage's last backward
  double per_param_s = 0;  ///< of the same
  /// Optimizer and gathering of what it wrote, when all stages have synchronised: the norm of the
  /// gradients needs them all.
  double update_fixed_s = 0;
  double update_per_param_s = 0;

  [[nodiscard]] double sync_s(double params) const { return fixed_s + per_param_s * params; }
  [[nodiscard]] double update_s(double params) const {
    return update_fixed_s + update_per_param_s * params;
  }
};

/// What crossing from one stage to the next costs per microbatch and direction.
struct Hop {
  double delay_s = 0;  ///< between the two stages, keeps neither busy
  double busy_s = 0;   ///< added to the forward and again to the backward of every stage
};

/// The two cost models behind one interface; each equation is in docs/cost-model.md.
class CostModel {
 public:
  virtual ~CostModel() = default;
  [[nodiscard]] virtual LayerTimes layer_times(std::uint32_t layer,
                                               const Sharding& sharding) const = 0;
  /// `bytes` is the whole activation at the cut.
  [[nodiscard]] virtual Hop hop(const Link& link, const Sharding& sharding, double bytes,
                                std::uint32_t stages) const = 0;
  [[nodiscard]] virtual StepTail step_tail(const Ring& ring, const Sharding& sharding) const = 0;
};

/// The model that job.search.model names. `job` must outlive it.
[[nodiscard]] std::unique_ptr<const CostModel> make_cost_model(const Job& job);

/// True for operators whose work and parameters are divided by the TP width. Norms and
/// element-wise operators are divided only under sequence parallelism, their parameters never.
[[nodiscard]] bool splits_work(OpKind kind, const Sharding& sharding);
[[nodiscard]] bool splits_params(OpKind kind);
/// Whether what the operator stashes for the backward pass is divided by the TP width: norms,
/// column-parallel linears (their input) and element-wise operators only under sequence
/// parallelism.
[[nodiscard]] bool splits_stash(OpKind kind, const Sharding& sharding);

}  // namespace tapas::solver
