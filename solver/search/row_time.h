#pragma once

#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"
#include "solver/search/place.h"
#include "solver/search/row.h"

#include <cstdint>
#include <map>
#include <memory>
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
  /// No placement makes the row faster than this.
  [[nodiscard]] double least_step_s(const Row& row);
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
  [[nodiscard]] PlacedRow relaxed(const std::vector<std::uint32_t>& kinds) const;

  const Cluster& cluster_;
  const std::vector<Pool>& pools_;
  const CostModel& model_;
  RowCosts& costs_;
  const std::vector<std::uint32_t> microbatches_;
  std::map<std::vector<std::uint32_t>, std::unique_ptr<PlacedRow>> placed_[kLayouts];
  std::map<std::vector<std::uint32_t>, PlacedRow> relaxed_;
  Pipeline pipeline_;
  PipelineClock clock_;
  std::vector<const StageFit*> fits_;
  std::uint64_t evaluated_ = 0;
  std::uint64_t work_ = 0;
};

}  // namespace tapas::solver
