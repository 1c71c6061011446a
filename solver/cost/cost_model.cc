#include "solver/cost/cost_model.h"

#include "solver/cost/document_model.h"
#include "solver/cost/physical_model.h"

namespace tapas::solver {

bool splits_params(OpKind kind) { return kind != OpKind::kNorm && kind != OpKind::kOther; }

bool splits_work(OpKind kind, const Sharding& sharding) {
  return splits_params(kind) || sharding.sequence_parallel;
}

bool splits_stash(OpKind kind, const Sharding& sharding) {
  return sharding.sequence_parallel ||
         (splits_params(kind) && kind != OpKind::kColumnParallelLinear);
}

std::unique_ptr<const CostModel> make_cost_model(const Job& job) {
  if (job.search.model == CostModelKind::kDocument) {
    return std::make_unique<DocumentModel>(job);
  }
  return std::make_unique<PhysicalModel>(job);
}

}  // namespace tapas::solver
