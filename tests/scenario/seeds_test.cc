#include "tests/scenario/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

namespace tapas::daemon::sim {
namespace {

constexpr std::uint64_t kTests = 8;
constexpr std::uint64_t kSeeds = 512;
constexpr std::uint64_t kManySeeds = 10'240;

/// What happened over all seeds, so that a run in which nothing happens does not pass.
struct Tally {
  std::size_t seeds = 0;
  std::size_t done = 0;
  std::size_t aborted = 0;
  std::uint64_t starts = 0;
  std::size_t verdicts = 0;
  std::size_t commands = 0;
};

void play_and_count(std::uint64_t seed, Tally& tally) {
  const auto sim = play(seed);
  ++tally.seeds;
  for (const auto& [epoch, row] : sim->disk().switches) {
    (row.state == SwitchState::kDone ? tally.done : tally.aborted) += 1;
  }
  tally.starts += sim->disk().term;
  tally.verdicts += sim->events("verdict").size();
  tally.commands += sim->replies().size();
}

/// A share of the seeds each, so that they run side by side.
class Seeds : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Seeds, EndInOneEpochWhateverBreaks) {
  const std::uint64_t only = number_from("TAPAS_SEED", 0);
  if (only != 0 && only % kTests != GetParam()) {
    GTEST_SKIP() << "skipped: another test has seed " << only;
  }
  const bool is_long = number_from("TAPAS_LONG", 0) != 0;
  const std::uint64_t last = number_from("TAPAS_SEEDS", is_long ? kManySeeds : kSeeds);
  Tally tally;
  for (std::uint64_t seed = GetParam() == 0 ? kTests : GetParam(); seed <= last; seed += kTests) {
    const std::uint64_t played = only != 0 ? only : seed;
    try {
      play_and_count(played, tally);
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\nagain: TAPAS_SEED=" << played
             << " build/dev/tests/core_scenario_test --gtest_filter='*Seeds*'";
    }
    if (only != 0) {
      return;
    }
  }
  std::printf("%zu seeds: %zu switches done, %zu aborted, %zu verdicts, %llu starts of the core\n",
              tally.seeds, tally.done, tally.aborted, tally.verdicts,
              static_cast<unsigned long long>(tally.starts));
  if (tally.seeds >= 32) {
    EXPECT_GT(tally.done, tally.seeds / 2);
    EXPECT_GT(tally.aborted, tally.seeds / 2);
    EXPECT_GT(tally.verdicts, tally.seeds);
    EXPECT_GT(tally.starts, 2 * tally.seeds);
    EXPECT_GT(tally.commands, 2 * tally.seeds);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Seeds, ::testing::Range(std::uint64_t{0}, kTests));

}  // namespace
}  // namespace tapas::daemon::sim
