#pragma once

#include "solver/search/row.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tapas::solver {

inline constexpr std::size_t kMostPools = 4;
/// Devices taken from each pool.
using Devices = std::array<std::uint32_t, kMostPools>;

/// Whether rows of one kind and so many stages can have all stage bounds (RowCosts::bound_s) at or
/// below a limit: every stage reaches as far as it can. When none can, no such row is faster than
/// the limit. O(stages * log layers).
[[nodiscard]] std::optional<Row> reach_alike(RowCosts& costs, std::uint32_t kind,
                                             std::uint32_t stages, double limit_s);

/// The cuts of a row of one kind with the least largest stage bound, the recomputation limit kept
/// (RowCosts::exact_bound_s); nothing when no row is below the cutoff. O(stages * layers^2).
[[nodiscard]] std::optional<Row> split_alike(RowCosts& costs, std::uint32_t kind,
                                             std::uint32_t stages, double cutoff_s);

/// As reach_alike() for rows whose stages choose among all kinds within the budgets, for all
/// numbers of stages at once: the fewest devices that the last stages need for the layers from each
/// one on. O(stages * layers * kinds), times what trading one pool for another leaves open.
class ReachMixed {
 public:
  ReachMixed(RowCosts& costs, std::uint32_t most_stages, double limit_s);

  /// Whether a row with `behind` + 1 stages from `layer` on fits what is left of the budgets.
  [[nodiscard]] bool possible(std::uint32_t behind, std::uint32_t layer, const Devices& left) const;
  /// A row with so many stages; nothing when none is possible.
  [[nodiscard]] std::optional<Row> row(std::uint32_t stages) const;

 private:
  struct Choice {
    Devices taken{};
    std::uint32_t kind = 0;
    std::uint32_t end = 0;
  };
  [[nodiscard]] const std::vector<Choice>& at(std::uint32_t behind, std::uint32_t layer) const {
    return choices_[std::size_t{behind} * (layers_ + 1) + layer];
  }

  const RowProblem* problem_;
  std::uint32_t layers_;
  Devices budget_{};
  std::vector<std::vector<Choice>> choices_;  ///< [behind][layer], none dominated
};

[[nodiscard]] Devices budget_of(const RowProblem& problem);

}  // namespace tapas::solver
