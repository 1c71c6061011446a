#include "tests/detect/trace.h"

#include "base/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

namespace tapas::daemon::testing {
namespace {

// Devices of one kind differ; what is a tenth slower than its equals counts as slow, so no healthy
// one is drawn there.
constexpr double kOffset = 0.03;
constexpr double kMostOffset = 0.09;
// How far the cost model is off between stages.
constexpr double kModelError = 0.05;
constexpr double kNoiseDiffers = 0.15;
constexpr double kWander = 0.005;
constexpr std::uint64_t kWanderSteps = 50;
constexpr double kRestShare = 0.15;
constexpr double kMinute = 60;

}  // namespace

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "none";
    case Fault::kDevice:
      return "device";
    case Fault::kHost:
      return "host";
    case Fault::kTwoDevices:
      return "two devices";
    case Fault::kFlapping:
      return "flapping";
    case Fault::kThermal:
      return "thermal";
    case Fault::kHeavyStage:
      return "heavy stage";
    case Fault::kData:
      return "data";
    case Fault::kPauses:
      return "pauses";
    case Fault::kJobWide:
      return "job-wide";
    case Fault::kInput:
      return "input";
  }
  return "";
}

double Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  // Marsaglia's polar method.
  double x = 0;
  double y = 0;
  double square = 0;
  do {
    x = 2 * uniform() - 1;
    y = 2 * uniform() - 1;
    square = x * x + y * y;
  } while (square >= 1 || square == 0);
  const double factor = std::sqrt(-2 * std::log(square) / square);
  spare_ = y * factor;
  has_spare_ = true;
  return x * factor;
}

TraceSpec spec_of(Fault fault, double depth, double noise, std::uint64_t seed,
                  std::uint32_t most_ranks) {
  Random random(seed * 7919 + static_cast<std::uint64_t>(fault));
  TraceSpec spec;
  spec.seed = seed;
  spec.fault = fault;
  spec.depth = depth;
  spec.noise = noise;
  const double size = random.uniform();
  const std::uint32_t ranks = size < 0.6 ? 64 : size < 0.85 ? 256 : size < 0.97 ? 1024 : 4096;
  spec.ranks = std::min(ranks, most_ranks);
  spec.healthy_steps = 100 + random.below(500);
  spec.faulty_steps = depth >= 0.2 ? 300 : 1000;
  return spec;
}

Trace::Trace(const TraceSpec& spec) : spec_(spec), random_(spec.seed), loader_(~spec.seed) {
  TAPAS_CHECK(spec.ranks > 0 && spec.ranks % 64 == 0, "{} ranks", spec.ranks);
  draw_layout(random_);
  draw_background(random_);
  draw_fault(random_);
}

void Trace::draw_layout(Random& random) {
  constexpr std::array<std::uint32_t, 4> kWidths = {8, 8, 4, 1};
  width_ = kWidths[random.below(kWidths.size())];
  const std::uint32_t nodes = spec_.ranks / width_;
  do {
    stages_ = 1U << random.below(4);
  } while (nodes / stages_ < 2 || (spec_.fault == Fault::kHeavyStage && stages_ == 1));
  replicas_ = nodes / stages_;
  microbatches_ = 4.0 * (1 + random.below(8));

  cluster_.device_types.emplace_back();
  cluster_.node_types.emplace_back().devices = width_;
  const double planned_s = random.between(0.02, 0.4);
  std::vector<double> stage_error;
  for (std::uint32_t stage = 0; stage < stages_; ++stage) {
    stage_error.push_back(std::exp(kModelError * random.normal()));
  }
  std::vector<Role> roles;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    cluster_.nodes.emplace_back().name = "node-" + std::to_string(node);
    const std::uint32_t stage = node % stages_;
    for (std::uint32_t device = 0; device < width_; ++device) {
      roles.push_back({true, node / stages_, stage, planned_s});
      const double offset = std::clamp(kOffset * random.normal(), -kMostOffset, kMostOffset);
      pace_s_.push_back(planned_s * stage_error[stage] * std::exp(offset));
      noise_.push_back(spec_.noise * std::exp(kNoiseDiffers * random.normal()));
      wandered_.push_back(kWander * random.normal());
    }
  }
  roles_ = Roles(cluster_, std::move(roles));
  rest_s_ = kRestShare * planned_s * (microbatches_ + stages_ - 1);
  whole_.ranks.resize(spec_.ranks);
}

void Trace::draw_background(Random& random) {
  // Jitter of whole jobs: dense, mixtures of experts, packed batches of uneven length.
  constexpr std::array<double, 5> kShared = {0, 0.004, 0.009, 0.03, 0.15};
  shared_noise_ = kShared[random.below(kShared.size())];
  const std::array<Spikes, 4> kinds = {Spikes{}, Spikes{0.011, 1.3, 1.6, false, false},
                                       Spikes{0.051, 1.42, 1.47, false, false},
                                       Spikes{0.11, 1.06, 1.16, true, false}};
  spikes_ = kinds[random.below(kinds.size())];
  spikes_.of_rank = random.chance(0.5);
  warm_up_ = random.chance(0.25) ? 0.15 : 0;
  if (random.chance(0.5)) {
    drift_ = random.between(0, 0.022);
  } else {
    diurnal_ = random.between(0.005, 0.01);  // Half of 1 to 2 % from night to day.
    diurnal_steps_ = random.between(2000, 20000);
  }
  first_step_ = random.between(2.3, 10.3);
  tags_ = random.chance(0.5);
  checkpoint_steps_ = 200 + random.below(800);
  checkpoint_s_ = random.between(10, 240);
  checkpoint_waits_ = random.chance(0.5);
  loader_stalls_ = random.chance(0.5);
  evaluation_steps_ = 100 + random.below(1900);
  evaluation_s_ = random.between(20, 600);
  if (random.chance(0.5)) {
    collection_steps_ = 250 + random.below(250);
    collection_s_ = random.between(0.1, 1.5);
  }
  if (random.chance(0.3) && spec_.healthy_steps >= 256) {
    restart_step_ = 64 + random.below(spec_.healthy_steps - 192);
  }
}

void Trace::draw_fault(Random& random) {
  const auto nodes = static_cast<std::uint32_t>(cluster_.nodes.size());
  const std::uint32_t node = random.below(nodes);
  const auto device_of = [&](std::uint32_t on) {
    return RankId(on * width_ + random.below(width_));
  };
  switch (spec_.fault) {
    case Fault::kHost:
      for (std::uint32_t device = 0; device < width_; ++device) {
        culprits_.emplace_back(node * width_ + device);
      }
      break;
    case Fault::kDevice:
    case Fault::kFlapping:
    case Fault::kThermal:
    case Fault::kInput:
      culprits_ = {device_of(node)};
      break;
    case Fault::kTwoDevices:
      culprits_ = {device_of(node), device_of((node + 1 + random.below(nodes - 1)) % nodes)};
      std::sort(culprits_.begin(), culprits_.end());
      break;
    case Fault::kHeavyStage:
      heavy_stage_ = random.below(stages_);
      break;
    case Fault::kNone:
    case Fault::kData:
    case Fault::kPauses:
    case Fault::kJobWide:
      break;
  }
  second_after_ = random.below(50);
  // Each device at a time of its own, two or more in each step.
  pause_steps_ = std::min(250 + random.below(250), spec_.ranks / 2);
  for (std::uint32_t rank = 0; rank < spec_.ranks; ++rank) {
    pause_phase_.push_back(random.below(pause_steps_));
  }
  flapping_share_ = random.between(0.2, 0.3);
  ramp_steps_ = 20 + random.below(60);
  rest_grows_ = random.chance(0.5);
  loaders_jitter_ = loader_.chance(0.5);
  input_grows_ = loader_.chance(0.5);
}

double Trace::shared() {
  const auto step = static_cast<double>(step_);
  double out = shared_noise_ * random_.normal();
  out += warm_up_ * std::max(0.0, 1 - step / 600);
  out += drift_ * std::min(1.0, step / 1500);
  return out + diurnal_ * std::sin(2 * std::numbers::pi * step / diurnal_steps_);
}

void Trace::wander() {
  constexpr double kKept = 0.9;
  for (double& at : wandered_) {
    at = kKept * at + std::sqrt(1 - kKept * kKept) * kWander * random_.normal();
  }
}

double Trace::thermal_share(std::uint64_t age) const {
  const auto ramp = static_cast<double>(ramp_steps_);
  const auto at = static_cast<double>(age);
  const double held = 0.7 * static_cast<double>(spec_.faulty_steps);
  return std::clamp(std::min(at / ramp, 1 - (at - held) / ramp), 0.0, 1.0);
}

void Trace::injure() {
  if (step_ < fault_step() || spec_.fault == Fault::kNone) {
    return;
  }
  const std::uint64_t age = step_ - fault_step();
  const auto slow = [&](RankId rank, double share) {
    whole_.ranks[rank.value()].compute_s *= 1 + share * spec_.depth;
  };
  switch (spec_.fault) {
    case Fault::kNone:
    case Fault::kInput:
      break;
    case Fault::kDevice:
    case Fault::kHost:
      for (const RankId rank : culprits_) {
        slow(rank, 1);
      }
      break;
    case Fault::kTwoDevices:
      slow(culprits_[0], 1);
      slow(culprits_[1], age >= second_after_ ? 1 : 0);
      break;
    case Fault::kFlapping:
      slow(culprits_[0], random_.chance(flapping_share_) ? 1 : 0);
      break;
    case Fault::kThermal:
      slow(culprits_[0], thermal_share(age));
      break;
    case Fault::kHeavyStage:
      for (const RankId rank : roles_.by_stage()[heavy_stage_]) {
        slow(rank, 1);
      }
      break;
    case Fault::kData: {
      // So large that the longest of the replicas' batches is about `depth` above the others.
      const double spread = std::log(1 + spec_.depth) / std::sqrt(2 * std::log(replicas_ + 1.0));
      std::vector<double> length;
      for (std::uint32_t replica = 0; replica < replicas_; ++replica) {
        length.push_back(std::exp(spread * random_.normal()));
      }
      for (std::uint32_t rank = 0; rank < spec_.ranks; ++rank) {
        whole_.ranks[rank].compute_s *= length[roles_.of(RankId(rank)).replica];
      }
      break;
    }
    case Fault::kPauses: {
      for (std::uint32_t rank = 0; rank < spec_.ranks; ++rank) {
        if (step_ % pause_steps_ == pause_phase_[rank]) {
          slow(RankId(rank), random_.between(0.8, 1.2));
        }
      }
      break;
    }
    case Fault::kJobWide:
      for (std::uint32_t rank = 0; rank < spec_.ranks && !rest_grows_; ++rank) {
        slow(RankId(rank), 1);
      }
      break;
  }
}

double Trace::critical_path_s() const {
  double slowest_s = 0;
  for (std::uint32_t replica = 0; replica < replicas_; ++replica) {
    double through_s = 0;
    double widest_s = 0;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      const std::uint32_t first = (replica * stages_ + stage) * width_;
      double stage_s = 0;
      for (std::uint32_t rank = first; rank < first + width_; ++rank) {
        stage_s = std::max(stage_s, whole_.ranks[rank].compute_s);
      }
      through_s += stage_s;
      widest_s = std::max(widest_s, stage_s);
    }
    slowest_s = std::max(slowest_s, through_s + (microbatches_ - 1) * widest_s);
  }
  return slowest_s;
}

void Trace::odd_step(double& extra_s) {
  const std::uint32_t flag = tags_ ? 1 : 0;
  if (checkpoint_steps_ > 0 && step_ % checkpoint_steps_ == 0) {
    whole_.flags |= flag;
    extra_s += checkpoint_waits_ ? checkpoint_s_ : 0;
  }
  // Written in the background, it takes its share of some steps; the loader may stall afterwards.
  const std::uint64_t since = step_ % checkpoint_steps_;
  if (step_ > checkpoint_steps_ && since > 0 && since <= 5 && !checkpoint_waits_) {
    extra_s += random_.between(0.01, 0.05) * rest_s_ / kRestShare;
  }
  if (step_ > checkpoint_steps_ && since == 1 && loader_stalls_ && random_.chance(0.5)) {
    const double stall_s = random_.between(2, 210);
    whole_.ranks[loader_.below(spec_.ranks)].input_s = stall_s;
  }
  if (step_ % evaluation_steps_ == 0) {
    whole_.flags |= flag;
    extra_s += evaluation_s_;
  }
  spiking_ = spikes_.clustered ? random_.chance(spiking_ ? 0.5 : spikes_.share / 2)
                               : random_.chance(spikes_.share);
  if (spiking_) {
    const double factor = random_.between(spikes_.least, spikes_.most);
    if (spikes_.of_rank) {
      whole_.ranks[random_.below(spec_.ranks)].compute_s *= factor;
    } else {
      extra_s += (factor - 1) * rest_s_ / kRestShare;
    }
  }
}

void Trace::pack() {
  constexpr double kTokens = 4096;
  constexpr double kAttentionShare = 0.2;
  std::vector<double> length;
  for (std::uint32_t replica = 0; replica < replicas_; ++replica) {
    length.push_back(std::exp(spec_.packed * loader_.normal()));
  }
  for (std::uint32_t rank = 0; rank < spec_.ranks; ++rank) {
    const double tokens = length[roles_.of(RankId(rank)).replica];
    whole_.ranks[rank].compute_s *= tokens * (1 + kAttentionShare * (tokens - 1));
    whole_.ranks[rank].tokens = spec_.hints ? kTokens * tokens : 0;
  }
}

double Trace::load() {
  constexpr double kJitter = 0.01;
  constexpr double kStallShare = 0.01;
  const double usual_s = rest_s_ / kRestShare;
  double longest_s = 0;
  if (loaders_jitter_) {
    for (RankStep& rank : whole_.ranks) {
      rank.input_s += kJitter * usual_s * std::abs(loader_.normal());
    }
    if (loader_.chance(kStallShare)) {
      whole_.ranks[loader_.below(spec_.ranks)].input_s += usual_s * loader_.between(0.1, 1);
    }
  }
  if (step_ >= fault_step()) {
    const double late_s = spec_.depth * usual_s;
    const bool all = spec_.fault == Fault::kJobWide && rest_grows_ && input_grows_;
    for (std::uint32_t rank = 0; rank < spec_.ranks && all; ++rank) {
      whole_.ranks[rank].input_s += late_s * loader_.between(0.9, 1);
    }
    if (spec_.fault == Fault::kInput) {
      whole_.ranks[culprits_[0].value()].input_s += late_s;
    }
  }
  for (const RankStep& rank : whole_.ranks) {
    longest_s = std::max(longest_s, rank.input_s);
  }
  return longest_s;
}

const WholeStep& Trace::next() {
  TAPAS_CHECK(step_ < steps(), "the trace is over after {} steps", step_);
  ++step_;
  new_session_ = step_ == restart_step_;
  session_step_ = new_session_ ? 1 : session_step_ + 1;
  if (step_ % kWanderSteps == 0) {
    wander();
  }
  whole_.step = step_;
  whole_.flags = 0;
  whole_.count = spec_.ranks;
  const double common = shared();
  const bool collecting = collection_steps_ > 0 && step_ % collection_steps_ == 0;
  for (std::uint32_t rank = 0; rank < spec_.ranks; ++rank) {
    const double value = common + wandered_[rank] + noise_[rank] * random_.normal();
    whole_.ranks[rank].compute_s =
        pace_s_[rank] * std::exp(value) + (collecting ? collection_s_ / microbatches_ : 0);
    whole_.ranks[rank].input_s = 0;
  }
  injure();
  if (spec_.packed > 0) {
    pack();
  }
  double extra_s = 0;
  odd_step(extra_s);
  const bool grows =
      spec_.fault == Fault::kJobWide && rest_grows_ && !input_grows_ && step_ >= fault_step();
  double wall_s = critical_path_s() + load();
  wall_s += extra_s + rest_s_ * std::exp(common) + (grows ? spec_.depth * rest_s_ / kRestShare : 0);
  if (session_step_ == 1) {
    whole_.flags |= tags_ ? 1U : 0U;
    wall_s *= first_step_;
  } else if (session_step_ == 2) {
    wall_s *= 1 + 0.3 * (first_step_ - 2.3) / 8;
  }
  time_s_ += wall_s + (new_session_ ? kMinute : 0);
  for (RankStep& rank : whole_.ranks) {
    rank.seen = true;
    rank.wall_s = wall_s;
    rank.end_s = time_s_;
  }
  return whole_;
}

}  // namespace tapas::daemon::testing
