#pragma once

#include "solver/replan/layout.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tapas::solver {

/// Holds a stage down to so many layers.
struct StageLimit {
  std::uint32_t stage = 0;
  std::uint32_t layers = 0;
};

/// Splits the layers of a row over the units it stands on so that its slowest stage takes least:
/// from the cuts it has, a layer at a time goes from the slowest stage to the one that takes it
/// best, over the boundaries between, as long as that helps. Exact for equal layers, as a faster
/// split would give some stage a layer more than it can take; near the cuts it starts from.
/// Links are left out; pinned units keep their layers. Not for several threads.
class RowSplit {
 public:
  /// Must outlive it.
  explicit RowSplit(Problem& problem) : problem_(problem) {}

  /// Of one replica or, where all share one split, of all by the slowest of each stage: the first
  /// layer of each stage and the number of layers. What fits nowhere stays where it is.
  [[nodiscard]] const std::vector<std::uint32_t>& operator()(
      const Layout& layout, std::uint32_t replica, std::span<const StageLimit> limits = {});

 private:
  /// A unit that some row has at the stage, and its row.
  struct Holder {
    std::uint32_t unit = 0;
    std::uint32_t replica = 0;
    std::uint32_t microbatches = 0;
  };

  void set_holders(const Layout& layout, std::uint32_t replica);
  [[nodiscard]] double time_s(std::uint32_t stage, std::uint32_t first, std::uint32_t last);
  /// Who takes a layer of the stage best, below `limit_s`; kNone when nobody does.
  [[nodiscard]] std::uint32_t taker(std::uint32_t from, double limit_s);

  Problem& problem_;
  std::vector<std::vector<Holder>> holders_;  ///< [stage]
  std::vector<bool> pinned_;                  ///< [stage]
  std::vector<std::uint32_t> cuts_;
  std::vector<double> times_;
  std::vector<std::uint32_t> most_;  ///< [stage]: layers it may have
};

}  // namespace tapas::solver
