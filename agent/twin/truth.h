#pragma once

#include "agent/twin/pipeline.h"
#include "base/ids.h"
#include "base/result.h"
#include "solver/model/cluster_state.h"
#include "solver/model/graph.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <vector>

namespace tapas::twin {

/// What one rank spent in one step, seconds. The parts add up to the step's wall time.
struct RankStep {
  RankId rank;
  NodeId node;
  std::uint32_t microbatches = 0;
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  double input_wait_s = 0;     ///< for its own batch, before its first compute
  double tp_collective_s = 0;  ///< waiting for the group's slowest member included
  double pp_transfer_s = 0;
  double pp_wait_s = 0;        ///< for neighbours, until this rank's last microbatch is done
  double dp_collective_s = 0;  ///< the rest: gradients, parameters, waiting for the other replicas
  double bytes_sent = 0;
};

/// What one stage sent to a neighbour on another node in one step.
struct LinkStep {
  RankId from;  ///< first of each group
  RankId to;
  double bytes = 0;       ///< whole group
  double transfer_s = 0;  ///< without waiting
};

/// One step of the whole job.
struct StepTruth {
  double wall_s = 0;
  std::vector<double> replica_s;  ///< when each replica's pipeline was done
  std::vector<RankStep> ranks;    ///< every rank that has a position in the plan
  std::vector<LinkStep> links;
};

/// What collectives take where the links are healthy: transfers grow with slow links, latencies do
/// not.
struct CollectiveTime {
  double latency_s = 0;
  double transfer_s = 0;
};

/// A plan worked out on the true hardware; made by Truth::lay_out().
struct Layout {
  /// One stage of one replica on nominal devices; the durations of compute scale with the device.
  struct Stage {
    solver::Position position;
    double forward_s = 0;       ///< compute of one microbatch
    double backward_s = 0;      ///< recomputation included
    CollectiveTime tp_forward;  ///< of one microbatch, all members at once
    CollectiveTime tp_backward;
    double next_bytes = 0;      ///< of one microbatch to the next stage, whole group
    double previous_bytes = 0;  ///< and to the previous one
    double optimizer_s = 0;
    std::vector<double> sync_bytes;  ///< gradients and parameters, per layer and rank of the group
    double microbatch_bytes = 0;     ///< sent per rank and microbatch
    double step_bytes = 0;           ///< sent per rank and step beside that
    solver::LayerRange layers;
  };
  solver::Plan plan;
  std::vector<std::vector<Stage>> replicas;  ///< [replica][stage]
};

/// What a stage spends on its links.
struct StageLinks {
  double tp_forward_s = 0;  ///< of one microbatch, as all that follow but the last
  double tp_backward_s = 0;
  double send_forward_s = 0;
  double send_backward_s = 0;
  double dp_s = 0;  ///< gradient and parameter collectives of the step
};

/// What moving between two plans takes.
struct Transfer {
  double bytes = 0;                  ///< whole job
  std::vector<double> node_s;        ///< per node of the cluster, 0 = not involved
  std::vector<double> device_bytes;  ///< received, per RankId
};

/// The emulated hardware: per-rank compute and per-link transfer first, the step from the critical
/// path of the pipelines. Its constants (truth.cc) are its own and are shared with no estimate of
/// the solver's. Devices and NICs differ a little, drawn once from the seed; every rank's compute
/// jitters from step to step, drawn from (seed, rank, step), so equal calls give equal answers.
class Truth {
 public:
  /// `job` must outlive this.
  Truth(const solver::Job& job, std::uint64_t seed);

  /// Refuses plans that this job's cluster could not run, with the reason.
  [[nodiscard]] Result<Layout> lay_out(const solver::Plan& plan) const;

  /// The stages' times on links that are as slow as `state` says, [replica][stage].
  [[nodiscard]] std::vector<std::vector<StageLinks>> links(const Layout& layout,
                                                           const solver::ClusterState& state) const;

  /// `state` is what is slow by now; `overhead` multiplies all compute (warm-up); `input_s`: how
  /// late each rank's first batch is, by RankId, empty = all are there.
  [[nodiscard]] StepTruth step(const Layout& layout, std::uint64_t step,
                               const solver::ClusterState& state, double overhead = 1.0,
                               const std::vector<double>& input_s = {}) const;

  /// Requires plans of equal replica counts.
  [[nodiscard]] Transfer transfer(const solver::Plan& before, const solver::Plan& after,
                                  const solver::ClusterState& state) const;

 private:
  [[nodiscard]] Layout::Stage stage_of(const solver::Plan& plan, std::uint32_t replica,
                                       std::uint32_t stage) const;
  /// `sharded`: the receiver keeps its shards and gathers nothing (sequence parallelism).
  [[nodiscard]] double link_s(const solver::Position& from, const solver::Position& to,
                              double bytes, bool sharded, const solver::ClusterState& state) const;
  [[nodiscard]] double node_bytes_per_s(NodeId node) const;  ///< all healthy NICs, one way
  /// What one device of `from` gets through to `to`, another node, in small messages.
  [[nodiscard]] double device_bytes_per_s(NodeId from, NodeId to,
                                          const solver::ClusterState& state) const;
  void add_gradient_sync(Layout& layout) const;
  /// Per layer: bytes per second of the slowest hop in the ring of the replicas that own it.
  [[nodiscard]] std::vector<double> ring_bytes_per_s(const Layout& layout,
                                                     const solver::ClusterState& state) const;

  const solver::Job& job_;
  std::uint64_t seed_;
  std::vector<double> device_time_;  ///< per RankId: time relative to a nominal device
  std::vector<double> nic_speed_;    ///< per NodeId: share of the nominal bandwidth
  std::vector<std::vector<const solver::OpNode*>> layers_;  ///< operators of each layer
};

}  // namespace tapas::twin
