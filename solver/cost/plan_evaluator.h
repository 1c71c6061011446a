#pragma once

#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"
#include "solver/cost/predict.h"
#include "solver/cost/stage_fit.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace tapas::solver {

/// The end of a step for one device group, in seconds from the first forward; the update counts
/// from when all groups have synchronised.
struct GroupEnd {
  double end_s = 0;           ///< of its last backward
  double synchronised_s = 0;  ///< of its gradients
  double update_s = 0;        ///< how long its update takes
};

/// Evaluates many plans of one job: tables and pipeline times are kept between calls. Not
/// thread-safe. `job` must outlive it.
class PlanEvaluator {
 public:
  explicit PlanEvaluator(const Job& job);

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const CostModel& model() const { return *model_; }
  [[nodiscard]] const LayerTable& table(const Sharding& sharding);

  /// How a stage of pp_splits is sharded, by its node and devices.
  [[nodiscard]] Sharding sharding_of(const Plan& plan, std::uint32_t replica,
                                     std::uint32_t stage) const;
  /// Slowest device of a position.
  [[nodiscard]] double slowdown(const ClusterState& state, const Position& position) const;

  /// Compute of one microbatch on a device group, all its chunks; healthy devices.
  [[nodiscard]] StageCompute compute_of(const Plan& plan, std::uint32_t replica,
                                        std::uint32_t group);
  [[nodiscard]] Pipeline pipeline_of(const Plan& plan, std::uint32_t replica,
                                     const ClusterState& state);

  /// Names equal pipelines by equal numbers; pipeline time of a class, computed once per count.
  [[nodiscard]] std::size_t class_of(Pipeline pipeline);
  [[nodiscard]] double class_time_s(std::size_t pipeline_class, std::uint32_t microbatches);

  /// When every replica has finished a stage its gradients are synchronised (or before, as its
  /// layers finish, when the job overlaps the two); after the last synchronisation all stages
  /// update their parameters.
  [[nodiscard]] double step_time_s(const Plan& plan, const ClusterState& state);
  /// The same, group by group of one replica.
  [[nodiscard]] std::vector<GroupEnd> group_ends(const Plan& plan, std::uint32_t replica,
                                                 const ClusterState& state);
  /// Bytes on a device of the group; the rule is that of its node type.
  [[nodiscard]] double memory_bytes(const Plan& plan, std::uint32_t replica, std::uint32_t group);
  [[nodiscard]] MemoryRule rule_of(const Plan& plan, std::uint32_t replica,
                                   std::uint32_t group) const;

 private:
  struct Class {
    Pipeline pipeline;
    std::unordered_map<std::uint32_t, std::vector<double>> ends_s;  ///< by microbatches
  };
  /// What a stage's synchronisation and update need to know.
  struct Tail {
    StepTail tail;
    double params = 0;
  };

  [[nodiscard]] const std::vector<double>& class_ends_s(std::size_t pipeline_class,
                                                        std::uint32_t microbatches);
  /// Whether a group's tail is that of replica 0.
  [[nodiscard]] bool tail_as_first(const Plan& plan, std::uint32_t replica,
                                   std::uint32_t group) const;
  [[nodiscard]] Tail tail_of(const Plan& plan, std::uint32_t replica, std::uint32_t group,
                             const Ring& ring);
  /// When the gradients of a device group are reduced, `ends_s` per stage of pp_splits.
  [[nodiscard]] double synchronised_s(const Plan& plan, std::uint32_t replica, std::uint32_t group,
                                      const Tail& tail, const std::vector<double>& ends_s,
                                      const ClusterState& state);

  const Job& job_;
  std::unique_ptr<const CostModel> model_;
  std::uint32_t layers_;
  std::vector<std::uint32_t> first_rank_;  ///< of each node
  std::map<Sharding, std::unique_ptr<LayerTable>> tables_;
  std::map<std::vector<double>, std::size_t> class_ids_;
  std::vector<Class> classes_;
  PipelineClock clock_;
};

}  // namespace tapas::solver
