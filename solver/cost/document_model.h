#pragma once

#include "solver/cost/cost_model.h"
#include "solver/model/plan.h"

namespace tapas::solver {

/// The equations of the TAPAS description, term by term, for reference and comparison.
/// docs/cost-model.md says where they are off.
class DocumentModel final : public CostModel {
 public:
  explicit DocumentModel(const Job& job) : job_(job) {}
  [[nodiscard]] LayerTimes layer_times(std::uint32_t layer,
                                       const Sharding& sharding) const override;
  [[nodiscard]] Hop hop(const Link& link, const Sharding& sharding, double bytes,
                        std::uint32_t stages) const override;
  [[nodiscard]] StepTail step_tail(const Ring& ring, const Sharding& sharding) const override;

 private:
  const Job& job_;
};

/// l1 max(mem_stage) + l2 total_comm + l3 max(stage_time) of a plan that this model predicted;
/// total_comm is tp_comm of all layers and pp_comm of one microbatch over the largest cut, seconds.
[[nodiscard]] double document_objective(const Job& job, const Plan& plan);

}  // namespace tapas::solver
