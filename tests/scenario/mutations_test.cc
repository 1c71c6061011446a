#include "tests/scenario/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

/// A test of the tests: protocols that are broken on purpose must be noticed.
namespace tapas::daemon::sim {
namespace {

constexpr std::uint64_t kSeeds = 500;

/// Plays seeds until an invariant breaks, and expects that it is one of those that the mutation is
/// meant to break.
void expect_caught(Mutation mutation, const std::vector<std::string>& findings) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    try {
      static_cast<void>(play(seed, mutation));
    } catch (const std::logic_error& error) {
      const std::string what = error.what();
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), what.c_str());
      EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [&](const std::string& finding) {
        return what.find(finding) != std::string::npos;
      }));
      return;
    }
  }
  FAIL() << "not noticed in " << kSeeds << " seeds";
}

TEST(Mutations, ACommitThatIsSentBeforeItIsDurableIsCaught) {
  expect_caught(Mutation::kCommitBeforeDurable, {"not durably active", "not decided"});
}

TEST(Mutations, AgentsThatDoNotFenceAreCaught) {
  expect_caught(Mutation::kNoFencing, {"goes from epoch", "without having got its layers"});
}

TEST(Mutations, VotesThatAreNotCountedAreCaught) {
  expect_caught(Mutation::kVotesNotCounted,
                {"past a barrier", "got ABORT of epoch", "without having transferred"});
}

}  // namespace
}  // namespace tapas::daemon::sim
