#pragma once

#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"
#include "solver/search/place.h"
#include "solver/search/row.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tapas::solver {

/// Where the replicas of a row stand, and what that gives to its transfers.
struct PlacedRow {
  std::vector<std::vector<Position>> placement;  ///< [replica][device group]
  /// Replicas that differ in their links or microbatches.
  struct Replica {
    std::uint32_t microbatches = 0;
    std::vector<Link> there;  ///< [group] to the next one; the last to the first when interleaved
    std::vector<Link> back;
    friend bool operator==(const Replica&, const Replica&);
  };
  std::vector<Replica> replicas;
  std::vector<StepTail> tails;  ///< [group]
};

/// Exact step times of rows, placed in each layout; keeps placements. Not for several threads.
class RowTimes {
 public:
  /// All must outlive it. `microbatches` has an entry per replica.
  RowTimes(const Cluster& cluster, const std::vector<Pool>& pools, const CostModel& model,
           RowCosts& costs, std::vector<std::uint32_t> microbatches);

  /// Step time in a layout; infinite when a stage does not fit, or the row has no room there.
  [[nodiscard]] double step_s(const Row& row, Layout layout);
  /// Over all layouts; `layout` is told when not null.
  [[nodiscard]] double best_step_s(const Row& row, Layout* layout = nullptr);
  /// No placement makes the row faster than this, or than the cutoff.
  [[nodiscard]] double least_step_s(const Row& row, double cutoff_s = kNever);
  [[nodiscard]] const PlacedRow* placed(const std::vector<std::uint32_t>& kinds, Layout layout);

  /// Stages of an interleaved row: chunk c of group g is stage c * groups + g, each with its fit.
  [[nodiscard]] double interleaved_step_s(const Row& row, std::uint32_t chunks,
                                          std::span<const StageFit> fits, Layout layout);

  /// Hill climbing on step_s in a layout: boundary shifts by one layer, single or a run of
  /// boundaries together; another kind for a stage or exchanged kinds of two.
  void polish(Row& row, double& time_s, Layout layout);

  [[nodiscard]] std::uint64_t evaluated() const { return evaluated_; }
  /// Stage times microbatch, over all pipelines run: the same on every machine.
  [[nodiscard]] std::uint64_t work() const { return work_; }

 private:
  [[nodiscard]] bool set_stages(const Row& row);
  [[nodiscard]] double finish_s(const Row& row, const PlacedRow& placed, std::uint32_t chunks);
  [[nodiscard]] double synchronised_s(const Row& row, std::uint32_t group, std::uint32_t chunks,
                                      const StepTail& tail, std::span<const double> ends);
  /// What no placement of groups of these kinds does better than.
  struct Relaxed {
    PlacedRow far;   ///< no two neighbours share a node
    PlacedRow near;  ///< all that can do
    bool may_share = false;
    /// [stage]: tails of it and the next one when those two share a node.
    std::vector<std::optional<std::array<StepTail, 2>>> shared;
  };
  [[nodiscard]] Relaxed relaxed(const std::vector<std::uint32_t>& kinds) const;

  const Cluster& cluster_;
  const std::vector<Pool>& pools_;
  const CostModel& model_;
  RowCosts& costs_;
  const std::vector<std::uint32_t> microbatches_;
  std::map<std::vector<std::uint32_t>, std::unique_ptr<PlacedRow>> placed_[kLayouts];
  std::map<std::vector<std::uint32_t>, Relaxed> relaxed_;
  Pipeline pipeline_;
  PipelineClock clock_;
  std::span<const double> ends_s_;  ///< of the last pipeline run
  std::vector<const StageFit*> fits_;
  std::uint64_t evaluated_ = 0;
  std::uint64_t work_ = 0;
};

}  // namespace tapas::solver
