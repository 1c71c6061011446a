#pragma once

#include "daemon/core/roles.h"
#include "daemon/core/step_window.h"
#include "solver/model/cluster.h"

#include <array>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

/// Made-up runs of training jobs with a known answer.
namespace tapas::daemon::testing {

enum class Fault : std::uint8_t {
  kNone,
  kDevice,
  kHost,
  kTwoDevices,  ///< on two nodes, the second up to 50 steps after the first
  kFlapping,    ///< one device, in two or three of ten steps
  kThermal,     ///< one device: rises over 20 to 80 steps, holds, falls again
  kHeavyStage,
  kData,    ///< uneven sequences: in each step other replicas are slow, with all their ranks
  kPauses,  ///< in each step other devices pause
  kJobWide,
  kInput,  ///< one rank's data loader is late in each step
};
inline constexpr std::uint32_t kFaults = 11;
[[nodiscard]] std::string_view to_string(Fault fault);

/// What to make. The seed decides all else: layout, offsets of devices, what else goes on.
struct TraceSpec {
  std::uint64_t seed = 1;
  Fault fault = Fault::kNone;
  double depth = 0;          ///< 0.2 = takes 1.2 times as long
  double noise = 0.01;       ///< standard deviation of a rank's compute in a step, log
  std::uint32_t ranks = 64;  ///< a multiple of 64
  std::uint32_t healthy_steps = 300;
  std::uint32_t faulty_steps = 400;
  /// Batches are packed: a replica's tokens differ by this (standard deviation, log) from step to
  /// step, its compute by a little more, as attention is not linear; 0 = all alike.
  double packed = 0;
  bool hints = false;  ///< the ranks tell their tokens
};

/// Noise of a rank's compute in recorded runs, and one between.
inline constexpr std::array<double, 4> kNoises = {0.009, 0.023, 0.05, 0.115};
/// A run with a fault, its size (64 ranks often, 4,096 seldom: about equal work for each) and the
/// healthy steps before drawn from the seed.
[[nodiscard]] TraceSpec spec_of(Fault fault, double depth, double noise, std::uint64_t seed,
                                std::uint32_t most_ranks = 4096);

/// Draws that are the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11U) * 0x1.0p-53; }
  double between(double least, double most) { return least + (most - least) * uniform(); }
  /// From 0 to count - 1.
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(engine_() % count); }
  bool chance(double share) { return uniform() < share; }
  double normal();

 private:
  std::mt19937_64 engine_;
  double spare_ = 0;
  bool has_spare_ = false;
};

/// One run, step by step. First each rank's compute is drawn, then the pipelines' critical path
/// makes the step time, the same for all ranks as in a real job. Links are healthy and not drawn.
class Trace {
 public:
  explicit Trace(const TraceSpec& spec);

  [[nodiscard]] const TraceSpec& spec() const { return spec_; }
  [[nodiscard]] const solver::Cluster& cluster() const { return cluster_; }
  [[nodiscard]] const Roles& roles() const { return roles_; }
  /// Ranks at fault, ascending; empty when no device is.
  [[nodiscard]] const std::vector<RankId>& culprits() const { return culprits_; }
  [[nodiscard]] std::uint32_t heavy_stage() const { return heavy_stage_; }
  /// The first step of the fault, also where there is none.
  [[nodiscard]] std::uint64_t fault_step() const { return spec_.healthy_steps + 1; }
  [[nodiscard]] std::uint64_t steps() const { return spec_.healthy_steps + spec_.faulty_steps; }

  /// The next step; valid until the following call. Requires that some are left.
  const WholeStep& next();
  /// The processes were started anew before this step.
  [[nodiscard]] bool new_session() const { return new_session_; }

 private:
  /// Lone steps that take longer, as real runs have them.
  struct Spikes {
    double share = 0;
    double least = 1;
    double most = 1;
    bool clustered = false;
    bool of_rank = false;  ///< one device's compute, else the rest of the step
  };
  void draw_layout(Random& random);
  void draw_background(Random& random);
  void draw_fault(Random& random);
  /// Log of what all ranks share in this step.
  double shared();
  void wander();
  /// Multiplies what the fault makes slower in this step.
  void injure();
  [[nodiscard]] double thermal_share(std::uint64_t age) const;
  [[nodiscard]] double critical_path_s() const;
  void odd_step(double& extra_s);

  /// Draws the tokens of each replica: compute follows them.
  void pack();
  /// What ranks wait for their batches in this step; returns the longest wait.
  double load();

  TraceSpec spec_;
  Random random_;
  Random loader_;  ///< apart, so that input changes nothing else that is drawn
  solver::Cluster cluster_;
  Roles roles_;
  std::uint32_t replicas_ = 1;
  std::uint32_t stages_ = 1;
  std::uint32_t width_ = 8;
  double microbatches_ = 16;

  // What the job is like.
  std::vector<double> pace_s_;    ///< per rank: of one microbatch, all offsets in it
  std::vector<double> noise_;     ///< per rank
  std::vector<double> wandered_;  ///< per rank, log
  double shared_noise_ = 0;
  double rest_s_ = 0;  ///< of a step, that is not compute
  double warm_up_ = 0;
  double drift_ = 0;
  double diurnal_ = 0;
  double diurnal_steps_ = 1;
  double first_step_ = 1;
  bool tags_ = true;  ///< first steps, checkpoints and evaluations carry flags
  std::uint64_t checkpoint_steps_ = 0;
  double checkpoint_s_ = 0;
  bool checkpoint_waits_ = true;
  bool loader_stalls_ = false;
  bool loaders_jitter_ = false;  ///< each rank waits a little, some now and then for long
  std::uint64_t evaluation_steps_ = 0;
  double evaluation_s_ = 0;
  std::uint64_t collection_steps_ = 0;  ///< planned garbage collection; 0 = none
  double collection_s_ = 0;
  std::uint64_t restart_step_ = 0;
  Spikes spikes_;
  bool spiking_ = false;

  // What goes wrong.
  std::vector<RankId> culprits_;
  std::uint32_t heavy_stage_ = 0;
  std::uint64_t second_after_ = 0;
  double flapping_share_ = 0;
  std::uint32_t pause_steps_ = 1;
  std::vector<std::uint32_t> pause_phase_;  ///< per rank
  std::uint64_t ramp_steps_ = 1;
  bool rest_grows_ = false;
  bool input_grows_ = false;  ///< that rest is everybody's wait for input

  std::uint64_t step_ = 0;
  std::uint64_t session_step_ = 0;
  bool new_session_ = false;
  double time_s_ = 0;
  WholeStep whole_;
};

}  // namespace tapas::daemon::testing
