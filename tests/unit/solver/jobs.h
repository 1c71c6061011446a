#pragma once

#include "solver/model/cluster_state.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

/// Jobs that the solver's tests share.
namespace tapas::solver::testing {

/// GPT-3 175B, 2048 tokens, batch 1536, on 128 nodes of 8 A800 with 4 NICs of 200 Gbit/s.
[[nodiscard]] Job gpt3_175b_on_1024();

/// A small decoder with uniform layers on `nodes` nodes of `devices` devices.
[[nodiscard]] Job small_job(std::uint32_t blocks, std::uint32_t nodes, std::uint32_t devices,
                            std::uint32_t global_batch);

/// Draws that are the same with every standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t between(std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(engine_() % (most - least + 1));
  }
  double between(double least, double most) {
    return least + (most - least) * static_cast<double>(engine_() >> 11U) * 0x1.0p-53;
  }

 private:
  std::mt19937_64 engine_;
};

/// Layers that all differ: random flops and bytes of a norm, a column- and a row-parallel linear.
[[nodiscard]] Job uneven_job(std::uint64_t seed, std::uint32_t layers, std::uint32_t nodes,
                             std::uint32_t devices, std::uint32_t global_batch);

/// Devices, NICs and the inside of nodes slowed at random, and `paths` paths.
[[nodiscard]] ClusterState random_state(const Cluster& cluster, Draw& draw, std::uint32_t paths);

/// Calls `visit` with every way to cut `layers` into `stages` parts.
void for_each_cut(std::uint32_t layers, std::uint32_t stages,
                  const std::function<void(const std::vector<std::uint32_t>&)>& visit);

/// A plan with the given cuts, groups of `width` placed in order, microbatches as equal as
/// possible.
[[nodiscard]] Plan simple_plan(const Job& job, const std::vector<std::uint32_t>& cuts,
                               std::uint32_t replicas, std::uint16_t width);

}  // namespace tapas::solver::testing
