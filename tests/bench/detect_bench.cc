#include "daemon/core/step_window.h"
#include "daemon/core/watch.h"
#include "tests/bench/bench.h"
#include "tests/detect/score.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace tapas::bench {
namespace {

using daemon::testing::Fault;
using daemon::testing::kNoises;
using daemon::testing::Tally;
using daemon::testing::Trace;
using daemon::testing::TraceSpec;

/// Records a second on one core, from the window to the levels, for the largest job. `all`: the
/// ranks tell waits for input and tokens, too.
Measurement ingest(bool all) {
  constexpr std::uint32_t kRanks = 16384;
  constexpr std::uint64_t kSteps = 60;
  TraceSpec spec;
  spec.ranks = kRanks;
  spec.noise = 0.05;
  spec.healthy_steps = kSteps;
  spec.faulty_steps = 0;
  spec.packed = all ? 0.1 : 0;
  spec.hints = all;
  Trace trace(spec);
  daemon::StepWindow window(kRanks);
  window.follow(kRanks);
  daemon::Watch watch(kRanks);
  watch.follow(trace.roles());
  std::vector<daemon::StepSample> samples(kRanks);
  double busy_s = 0;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const daemon::WholeStep& drawn = trace.next();
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      daemon::StepSample& sample = samples[rank];
      sample.rank = RankId(rank);
      sample.step = step;
      sample.end_time_s = drawn.ranks[rank].end_s;
      sample.microbatches = 1;
      sample.wall_s = drawn.ranks[rank].wall_s;
      sample.forward_s = drawn.ranks[rank].compute_s;
      if (all) {
        sample.work_tokens = static_cast<std::uint32_t>(drawn.ranks[rank].tokens);
        sample.input_wait_s = 0.001 * (rank % 7);
      }
    }
    const double begin_s = thread_cpu_s();
    for (const daemon::StepSample& sample : samples) {
      static_cast<void>(window.add(sample));
    }
    while (auto whole = window.next()) {
      static_cast<void>(watch.observe(*whole));
      window.recycle(std::move(*whole));
    }
    busy_s += thread_cpu_s() - begin_s;
  }
  return {all ? "detect.ingest_16384_hints" : "detect.ingest_16384", kSteps * kRanks / busy_s,
          "records/s", 300'000, false};
}

std::vector<Measurement> quality() {
  constexpr std::uint64_t kSeeds = 96;
  Tally faults;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    constexpr std::array<double, 3> kDepths = {0.2, 0.5, 1.0};
    const Fault fault = seed % 2 == 0 ? Fault::kDevice : Fault::kHost;
    const TraceSpec spec = daemon::testing::spec_of(fault, kDepths[seed % kDepths.size()],
                                                    kNoises[seed / 2 % kNoises.size()], seed, 256);
    faults.add(judge(spec, {daemon::testing::detector}).front());
  }
  Tally quiet;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    TraceSpec spec;
    spec.seed = seed;
    spec.noise = kNoises[seed % kNoises.size()];
    spec.healthy_steps = 5000;
    spec.faulty_steps = 0;
    quiet.add(judge(spec, {daemon::testing::detector}).front());
  }
  return {{"detect.culprit_right", faults.right_percent(), "%", 99, false},
          {"detect.delay_20_median", faults.delay(0.5), "steps", 3, true},
          {"detect.delay_20_p99", faults.delay(0.99), "steps"},
          {"detect.false_per_million", quiet.false_per_million(), "", 1, true}};
}

const Registration kDetect("detect.", [] {
  std::vector<Measurement> all = quality();
  all.insert(all.begin(), {ingest(false), ingest(true)});
  return all;
});

}  // namespace
}  // namespace tapas::bench
