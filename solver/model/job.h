#pragma once

#include "base/result.h"
#include "solver/model/cluster.h"
#include "solver/model/graph.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::solver {

enum class Schedule : std::uint8_t { kGpipe, k1f1b, kInterleaved };
std::string_view to_string(Schedule schedule);

enum class CostModelKind : std::uint8_t { kPhysical, kDocument };
std::string_view to_string(CostModelKind kind);

/// Which changes the job's runtime can apply while it runs.
struct Capabilities {
  bool replica_splits = true;     ///< replicas may cut their layers differently
  bool microbatch_counts = true;  ///< replicas may take different numbers of microbatches
  bool recompute = true;          ///< recompute flags may change, for each replica apart
  bool placement = true;          ///< stages may move to other devices
  /// A stage of one replica may run on part of its devices, as a narrower TP group.
  bool narrower_groups = false;
};

struct Limits {
  double device_memory_bytes = 0;      ///< 0 = the device's own
  double memory_reserve_ratio = 0.06;  ///< held back for the allocator and communication buffers
  double step_time_s = 0;              ///< 0 = none
  double recompute_ratio = 0.15;       ///< extra compute allowed for recomputation
};

/// Weights of the `document` objective, l1 max memory + l2 communication + l3 max stage time.
struct ObjectiveWeights {
  double memory_per_byte = 0;
  double communication_per_s = 1;
  double stage_time_per_s = 1;
};

struct SearchSettings {
  CostModelKind model = CostModelKind::kPhysical;
  std::uint64_t seed = 1;
  std::uint32_t min_stages = 1;
  std::uint32_t max_stages = 32;
  std::vector<std::uint32_t> tp_widths;  ///< empty = 1, 2, 4, ... up to a node's devices
  /// Stages of one replica may have different TP widths, where the job's runtime can do that. Where
  /// the cluster has several node types, their stages may differ in any case.
  bool stage_widths = false;
  /// Samples of a microbatch to consider; empty = the graph's. The plan says which it took.
  std::vector<std::uint32_t> micro_batch_sizes;
  /// Stages per device group to consider in an interleaved schedule; empty = 1, 2, 3, 4, 6, 8.
  std::vector<std::uint32_t> interleave;
  bool anneal = false;  ///< simulated annealing over the outer choices instead of enumeration
  ObjectiveWeights weights;
};

struct Job {
  std::string name;
  Graph graph;  ///< its micro_batch_size is the job's
  Cluster cluster;
  std::uint32_t global_batch = 0;  ///< samples per step
  std::string dtype = "bf16";
  double optimizer_bytes_per_param = 12;  ///< Adam with fp32 master weights and both moments
  double gradient_bytes_per_param = 4;
  double bytes_per_param = 2;
  std::uint32_t zero_stage = 1;  ///< 0 or 1
  Schedule schedule = Schedule::k1f1b;
  bool overlap_tp = false;  ///< collectives of sequence parallelism run beside matrix products
  /// Gradients of a layer are reduced as soon as its last backward is done, while earlier layers
  /// still compute; else when the stage has finished.
  bool overlap_gradients = false;
  Limits limits;
  Capabilities capabilities;
  SearchSettings search;
  double switch_pause_s = 2.0;  ///< fixed cost of any switch, beside the bytes moved

  [[nodiscard]] std::uint32_t total_microbatches() const {
    return global_batch / graph.micro_batch_size;
  }
};

/// The job with another micro-batch size: its graph's flops and bytes grow in proportion, measured
/// times are looked up by the new size. Size 0 and the job's own leave it as it is; others must
/// divide the global batch. Whatever takes a job and a plan reads the job with the plan's size.
[[nodiscard]] Job with_micro_batch_size(Job job, std::uint32_t size);

/// Requires valid graph and cluster, a batch that microbatches divide, sane limits.
[[nodiscard]] Result<void> validate(const Job& job);

}  // namespace tapas::solver
