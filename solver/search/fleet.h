#pragma once

#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/search/row.h"
#include "solver/search/shapes.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tapas::solver {

/// What rows are made of, for every micro-batch size that the job considers. Built once; only read
/// afterwards, so many threads may.
class Fleet {
 public:
  /// `job` must outlive it.
  explicit Fleet(const Job& job);

  struct Size {
    Job job;  ///< with that micro-batch size
    std::unique_ptr<const CostModel> model;
    std::map<Sharding, std::unique_ptr<LayerTable>> tables;
  };
  [[nodiscard]] const std::vector<std::unique_ptr<Size>>& sizes() const { return sizes_; }
  [[nodiscard]] const std::vector<Pool>& pools() const { return pools_; }
  /// Why a width is not planned, one sentence each.
  [[nodiscard]] const std::vector<std::string>& not_measured() const { return not_measured_; }
  /// Whether stages of one row may mix kinds: widths that divide one another and their nodes.
  [[nodiscard]] bool mixes() const { return mixes_; }
  /// Why they do not although the job allows it; empty when they do, or are not to.
  [[nodiscard]] const std::string& not_mixed() const { return not_mixed_; }

  /// Rows of one kind; the caller sets the microbatches.
  [[nodiscard]] RowProblem problem(const Size& size, const Sharding& sharding,
                                   std::uint32_t replicas) const;
  /// Rows that choose among all kinds with or without sequence parallelism.
  [[nodiscard]] RowProblem problem(const Size& size, bool sequence_parallel,
                                   std::uint32_t replicas) const;
  /// Groups of that sharding that all its nodes hold together.
  [[nodiscard]] std::uint32_t slots(const Sharding& sharding) const;

 private:
  [[nodiscard]] GroupKind kind(const Size& size, const Sharding& sharding,
                               std::uint32_t replicas) const;
  [[nodiscard]] std::uint32_t pool_of(const Sharding& sharding) const;

  const Job& job_;
  std::vector<Pool> pools_;
  std::vector<std::unique_ptr<Size>> sizes_;
  std::vector<std::string> not_measured_;
  bool mixes_ = false;
  std::string not_mixed_;
};

/// As equal as can be, in multiples of `unit`; empty when that does not divide the total.
[[nodiscard]] std::vector<std::uint32_t> shares(std::uint32_t total, std::uint32_t replicas,
                                                std::uint32_t unit = 1);

}  // namespace tapas::solver
