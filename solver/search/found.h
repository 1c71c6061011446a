#pragma once

#include "solver/model/plan.h"
#include "solver/search/fleet.h"
#include "solver/search/place.h"
#include "solver/search/row_time.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace tapas::solver {

/// Which rows: the outer choices of the search.
struct Spec {
  std::uint32_t size = 0;  ///< index into Fleet::sizes()
  bool mixed = false;      ///< stages choose among all kinds
  Sharding sharding;       ///< of all stages; when mixed only its sequence_parallel counts
  std::uint32_t replicas = 1;
  std::uint32_t stages = 1;
  std::uint32_t chunks = 1;
};

/// A row, where it stands and what it takes.
struct Found {
  double value = kNever;  ///< step time, or the objective that is minimised
  double step_s = kNever;
  Spec spec;
  Row row;
  Layout layout = Layout::kStagesTogether;
  std::vector<StageFit> fits;  ///< of an interleaved row's stages
};

/// What it takes to look at rows of one spec; not for several threads.
class Bench {
 public:
  Bench(const Fleet& fleet, const Spec& spec);

  RowProblem problem;
  RowCosts costs;
  RowTimes times;
};

[[nodiscard]] Plan plan_of(const Job& job, const Fleet& fleet, const Found& found);

}  // namespace tapas::solver
