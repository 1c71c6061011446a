#include "tests/detect/links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace tapas::daemon::testing {
namespace {

LinkOutcome judged(LinkCase link_case, double depth, double noise) {
  LinkOutcome sum;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    LinkRun run;
    run.link_case = link_case;
    run.depth = depth;
    run.noise = noise;
    run.seed = seed;
    sum.add(judge_links(run));
  }
  return sum;
}

TEST(LinkRecords, FaultsAreNamedByPartWithinAFewIntervals) {
  for (const LinkCase link_case :
       {LinkCase::kSend, LinkCase::kReceive, LinkCase::kPath, LinkCase::kTwo}) {
    const LinkOutcome outcome = judged(link_case, 1, 0.05);
    EXPECT_EQ(outcome.delays.size(), outcome.faults) << to_string(link_case);
    EXPECT_EQ(outcome.wrong + outcome.partly, 0U) << to_string(link_case);
    ASSERT_FALSE(outcome.delays.empty());
    EXPECT_LE(*std::max_element(outcome.delays.begin(), outcome.delays.end()), 8U);
  }
}

TEST(LinkRecords, JitterAndPassingCongestionAreNoFaults) {
  for (const double noise : {0.05, 0.15}) {
    EXPECT_EQ(judged(LinkCase::kHealthy, 0, noise).wrong, 0U) << noise;
    EXPECT_EQ(judged(LinkCase::kCongestion, 0, noise).wrong, 0U) << noise;
  }
}

}  // namespace
}  // namespace tapas::daemon::testing
