#pragma once

#include "solver/replan/layout.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace tapas::solver {

/// The split of a row that is best by true worth, its units and all other rows as they are: branch
/// and bound over the cuts from the first stage to the last. A stage of a row bounds its time by
/// docs/cost-model.md, "Bounds"; whole rows are timed exactly. Not for several threads.
class ExactSplit {
 public:
  /// Must outlive it.
  explicit ExactSplit(Problem& problem);

  struct Found {
    std::vector<std::uint32_t>
        cuts;  ///< with the number of layers; those it has when none is better
    Worth worth;
    bool proven = false;  ///< false: given up, the best one seen
  };
  /// Of one replica or, where all share one split, of all. `now` is what the layout is worth, and
  /// the layout comes back as it was. Gives up after `most` branches, or when `spent` says so.
  [[nodiscard]] Found operator()(Layout& layout, std::uint32_t replica, const Worth& now,
                                 std::uint64_t most, const std::function<bool()>& spent);

 private:
  void set_stages(const Layout& layout, std::uint32_t replica);
  void branch(std::uint32_t stage, double before_s);
  void time_whole();
  [[nodiscard]] StageTime time_of(std::uint32_t stage, LayerRange range);
  [[nodiscard]] double bound_s(std::uint32_t stage, const StageTime& time, double before_s,
                               double later_s) const;
  [[nodiscard]] double rest_s(std::uint32_t layer) const { return least_.back() - least_[layer]; }

  Problem& problem_;
  std::vector<double> least_;  ///< [layer]: time of the layers before on the fastest shard, healthy

  Layout* layout_ = nullptr;
  const std::function<bool()>* spent_ = nullptr;
  std::uint32_t replica_ = 0;
  std::uint32_t microbatches_ = 0;                ///< fewest that a row may end with
  std::vector<std::vector<std::uint32_t>> rows_;  ///< [stage]: rows whose units differ there
  std::vector<double> fastest_;                   ///< [stage]: least slowdown of a row there
  std::vector<double> capacity_;  ///< [stage]: speeds of the slowest rows from it on
  std::vector<bool> pinned_;
  std::vector<std::uint32_t> old_;
  std::vector<std::uint32_t> cuts_;
  double charge_ = 1;  ///< least by which a step counts longer for the switch
  std::uint64_t left_ = 0;
  Found found_;
};

}  // namespace tapas::solver
