#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "solver/model/job.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::solver {

/// Where one stage of one replica runs, or all its chunks: a TP group inside one node.
struct Position {
  NodeId node;
  /// Local indices: the group is as wide as they are many. That is the layers' tp_width, or less
  /// where the job's runtime can run narrower groups.
  std::vector<std::uint16_t> devices;

  friend bool operator==(const Position&, const Position&) = default;
};

/// What the solver says about a plan, in the units of the cost model that made it.
struct Prediction {
  double step_time_s = 0;
  double lower_bound_s = 0;  ///< no plan of the search space can be faster (all devices healthy)
  double gap_ratio = 0;      ///< step_time / lower_bound - 1
  double peak_fraction = 0;  ///< model flops / (step time * peak flops of the devices used)
  std::vector<double> stage_time_s;        ///< forward + backward of one microbatch, replica 0
  std::vector<double> stage_memory_bytes;  ///< largest over replicas, per device
  double tp_bytes = 0;                     ///< per device and step, worst stage
  double pp_bytes = 0;
  double dp_bytes = 0;
};

/// What runs where. Array index = layer for tp_width and checkpoint, replica for microbatches,
/// [replica][device group] for placement.
struct Plan {
  std::string job;
  Epoch epoch;
  Epoch parent;
  Schedule schedule = Schedule::k1f1b;
  /// Stages of each device group, over 1 only in an interleaved plan: chunk c of group g is stage
  /// c * stages() + g of pp_splits.
  std::uint32_t interleave = 1;
  std::uint32_t micro_batch_size = 0;    ///< samples; 0 = the job's
  std::vector<std::uint32_t> pp_splits;  ///< first layer of each stage; [0] is 0
  std::vector<std::uint16_t> tp_width;
  std::vector<bool> checkpoint;  ///< true = recompute the layer in the backward pass
  std::uint16_t sp_width = 1;    ///< sequence-parallel width: 1, or the TP width
  std::vector<std::uint32_t> microbatches;
  std::vector<std::vector<Position>> placement;
  /// Cuts of replicas that differ from pp_splits; empty, or one entry per replica with an empty
  /// entry meaning pp_splits.
  std::vector<std::vector<std::uint32_t>> replica_splits;
  /// Recompute flags of replicas that differ from `checkpoint`, in the same manner.
  std::vector<std::vector<bool>> replica_checkpoint;
  Prediction predicted;

  /// Device groups of a replica. Without interleaving these are the stages of pp_splits.
  [[nodiscard]] std::uint32_t stages() const {
    const auto all = static_cast<std::uint32_t>(pp_splits.size());
    return interleave > 1 ? all / interleave : all;
  }
  [[nodiscard]] std::uint32_t replicas() const {
    return static_cast<std::uint32_t>(placement.size());
  }
  [[nodiscard]] const std::vector<std::uint32_t>& splits_of(std::uint32_t replica) const {
    return replica < replica_splits.size() && !replica_splits[replica].empty()
               ? replica_splits[replica]
               : pp_splits;
  }
  [[nodiscard]] const std::vector<bool>& checkpoint_of(std::uint32_t replica) const {
    return replica < replica_checkpoint.size() && !replica_checkpoint[replica].empty()
               ? replica_checkpoint[replica]
               : checkpoint;
  }
};

/// A half-open range of layers.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  ///< one past the end
};
/// Layers of a stage of pp_splits. Requires replica and stage to exist; `layers` is the model's
/// layer count.
[[nodiscard]] LayerRange stage_layers(const Plan& plan, std::uint32_t replica, std::uint32_t stage,
                                      std::uint32_t layers);

/// One layer going to another group of devices in a switch.
struct LayerMove {
  std::uint32_t replica = 0;
  std::uint32_t layer = 0;
  std::uint32_t from_stage = 0;
  std::uint32_t to_stage = 0;
  Position from;
  Position to;
  double bytes = 0;  ///< parameters and the replica's optimizer state, whole group
};

/// Every layer whose devices differ between two plans of one job; both pass check_plan(). A replica
/// that `before` does not have takes its layers from one that it has. Devices that held the same
/// layer for another replica need only what replicas do not share: its part of the optimizer state.
[[nodiscard]] std::vector<LayerMove> moves_between(const Job& job, const Plan& before,
                                                   const Plan& after);

}  // namespace tapas::solver
