// Holds the detector to what docs/detection.md says of it, on some hundred made-up runs.
#include "tests/detect/score.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace tapas::daemon::testing {
namespace {

constexpr std::uint32_t kMostRanks = 256;

/// The detector alone on traces of these faults, each seed with one of the noises below
/// `most_noise`.
Tally tally_of(const std::vector<Fault>& faults, const std::vector<double>& depths,
               double most_noise, std::uint64_t seeds) {
  Tally tally;
  std::vector<TraceSpec> specs;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const double noise = kNoises[seed % kNoises.size()];
    if (noise <= most_noise) {
      specs.push_back(spec_of(faults[seed % faults.size()], depths[seed / 4 % depths.size()], noise,
                              1000 + seed, kMostRanks));
    }
  }
  std::vector<Outcome> outcomes(specs.size());
  for_each_of(
      specs.size(), [&](std::size_t i) { outcomes[i] = judge(specs[i], {detector}).front(); },
      [&](std::size_t i) {
        tally.add(outcomes[i]);
        if (!outcomes[i].first_wrong.empty()) {
          std::printf("%s, seed %llu: %s\n", to_string(specs[i].fault).data(),
                      static_cast<unsigned long long>(specs[i].seed),
                      outcomes[i].first_wrong.c_str());
        }
      });
  return tally;
}

TEST(Detection, NamesTheSlowOneSoonAndNobodyElse) {
  const Tally tally =
      tally_of({Fault::kDevice, Fault::kHost, Fault::kTwoDevices}, {0.2, 0.5, 1.0}, 1, 60);
  EXPECT_GE(tally.right_percent(), 98);
  EXPECT_EQ(tally.victim_percent(), 0);
  EXPECT_EQ(tally.false_calls(), 0U);
  EXPECT_LE(tally.delay(0.5), 3);
}

TEST(Detection, FindsSmallPlateausWithinTwoHundredSteps) {
  const Tally tally = tally_of({Fault::kDevice}, {0.05, 0.1}, 0.03, 60);
  EXPECT_EQ(tally.right_percent(), 100);
  EXPECT_LE(tally.delay(0.99), 200);
}

TEST(Detection, TellsWorkFromHardware) {
  const Tally tally = tally_of({Fault::kHeavyStage, Fault::kData, Fault::kPauses, Fault::kJobWide},
                               {0.5, 1.0}, 1, 64);
  EXPECT_GE(tally.right_percent(), 85);
  EXPECT_LE(tally.victim_percent(), 2);
}

TEST(Detection, NamesNobodyWhereLongUnevenWorkLooksLikeASlowDevice) {
  constexpr std::array<double, 3> kDepths = {0.2, 0.5, 1.0};
  for (const std::uint64_t seed : {47U, 127U, 194U, 281U, 287U, 295U}) {
    const TraceSpec spec = spec_of(Fault::kData, kDepths[seed % 3], kNoises[0], seed, 64);
    const Outcome outcome = judge(spec, {detector}).front();
    EXPECT_FALSE(outcome.victim) << "seed " << seed << ": " << outcome.first_wrong;
  }
}

TEST(Detection, NamesLateLoadersAndNobodyElse) {
  const Tally tally = tally_of({Fault::kInput}, {0.2, 0.5, 1.0}, 1, 48);
  EXPECT_GE(tally.right_percent(), 95);
  EXPECT_EQ(tally.victim_percent(), 0);
  EXPECT_LE(tally.delay(0.5), 15);
}

TEST(Detection, TokensOfPackedBatchesShowASlowDeviceAtOnce) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    TraceSpec spec = spec_of(Fault::kDevice, 0.25, kNoises[1], seed, kMostRanks);
    spec.packed = 0.115;
    spec.hints = true;
    tally.add(judge(spec, {detector}).front());
  }
  EXPECT_EQ(tally.right_percent(), 100);
  EXPECT_EQ(tally.false_calls(), 0U);
  EXPECT_LE(tally.delay(0.99), 8);
}

TEST(Detection, FindsWhoFlaps) {
  const Tally tally = tally_of({Fault::kFlapping}, {0.6}, 0.06, 20);
  EXPECT_GE(tally.right_percent(), 95);
  EXPECT_LE(tally.delay(0.5), 50);
}

TEST(Detection, SaysNothingWhereChanceLooksLikeAFault) {
  struct Unlucky {
    std::uint64_t seed;
    double noise;
    std::uint32_t steps;
  };
  // Three spikes of one rank in a row, thrice; an offset that the first steps show too large;
  // fifteen spikes of the whole step in a row.
  for (const Unlucky& one :
       {Unlucky{20636, 0.009, 500}, Unlucky{21093, 0.009, 500}, Unlucky{21222, 0.009, 500},
        Unlucky{31064, 0.023, 500}, Unlucky{7170, 0.009, 4500}}) {
    TraceSpec spec;
    spec.seed = one.seed;
    spec.noise = one.noise;
    spec.healthy_steps = one.steps;
    spec.faulty_steps = 0;
    EXPECT_EQ(judge(spec, {detector}).front().first_wrong, "") << "seed " << one.seed;
  }
}

TEST(Detection, SaysNothingWhereNothingIsWrong) {
  Tally tally;
  for (const double noise : kNoises) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      TraceSpec spec;
      spec.seed = 5000 + seed;
      spec.noise = noise;
      spec.ranks = seed == 1 ? 1024 : 64;
      spec.healthy_steps = seed == 1 ? 150 : 1500;
      spec.faulty_steps = 0;
      tally.add(judge(spec, {detector}).front());
    }
  }
  EXPECT_EQ(tally.false_calls(), 0U);
}

}  // namespace
}  // namespace tapas::daemon::testing
