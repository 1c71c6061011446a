#include "tests/scenario/sim.h"
#include "tests/scenario/story.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::daemon::sim {
namespace {

std::string verdicts(const Sim& sim) {
  std::string all;
  for (const EventRow& row : sim.events("verdict")) {
    all += row.sentence + "\n";
  }
  return all;
}

TEST(Links, ASlowNicIsNamedByDirectionAndNobodyElse) {
  Sim sim(job_on(8, 4), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
  const std::string culprit = node_name(sim, 1);
  sim.slow_links(culprit, {.send = 3, .receive = 1, .inside = 1});
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  EXPECT_EQ(sim.events("verdict").front().node, culprit) << verdicts(sim);
  ASSERT_TRUE(sim.run_till(
      [&] { return sim.core().decisions("small").front().reason_code != "first_plan"; }, 60));
  const DecisionRow decision = sim.core().decisions("small").front();
  EXPECT_EQ(text(decision, "cause"), "link") << decision.sentence;
  EXPECT_NEAR(number(decision, "slowdown"), 3, 0.3);
  EXPECT_NE(decision.sentence.find(culprit), std::string::npos) << decision.sentence;

  sim.run_until(sim.now() + 60);
  sim.slow_links(culprit, {});
  sim.run_until(sim.now() + 120);
  for (const EventRow& row : sim.events("verdict")) {
    EXPECT_EQ(row.node, culprit) << verdicts(sim);
  }
}

TEST(Links, RecoveryOfComputeIsToldWhileTheLinksAreStillSlow) {
  Sim sim(job_on(8, 4), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
  const std::string culprit = node_name(sim, 1);
  sim.slow_links(culprit, {.send = 3, .receive = 1, .inside = 1});
  sim.slow(culprit, 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.events("verdict").size() >= 2; }, 120))
      << verdicts(sim);
  sim.slow(culprit, 1.0);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("recovery").empty(); }, 60));
  EXPECT_EQ(text(sim.events("recovery").front(), "cause"), "device");
  EXPECT_NE(told(sim, "recovery").find("its links are still slow"), std::string::npos)
      << told(sim, "recovery");
  ASSERT_EQ(sim.view().slow_links.size(), 1U);
  sim.slow_links(culprit, {});
  ASSERT_TRUE(sim.run_till([&] { return sim.events("recovery").size() == 2; }, 60));
  EXPECT_EQ(text(sim.events("recovery").back(), "cause"), "link");
}

TEST(Links, ASlowPathIsNoNodesFault) {
  Sim sim(job_on(8, 4), {});
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
  const auto plan = sim.core().plan("small");
  ASSERT_GT(plan->stages(), 2U);
  const auto name = [&](std::uint32_t stage) {
    return sim.core().job("small")->cluster.nodes[plan->placement[0][stage].node.value()].name;
  };
  sim.slow_path(name(1), name(2), 2.5);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  EXPECT_NE(verdicts(sim).find("from node " + name(1) + " to node " + name(2)), std::string::npos)
      << verdicts(sim);
  sim.slow_path(name(1), name(2), 1);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("recovery").empty(); }, 60));
  // A reader of the journal can tell what has ended.
  for (const char* key : {"cause", "part", "from", "to"}) {
    const std::string said = text(sim.events("verdict").front(), key);
    EXPECT_NE(said, "") << key;
    EXPECT_EQ(text(sim.events("recovery").front(), key), said) << key;
  }
  sim.run_until(sim.now() + 300);
  EXPECT_EQ(sim.events("verdict").size(), 1U) << verdicts(sim);
}

TEST(Links, ASlowNicIsRememberedOverARestart) {
  Options options;
  Sim sim(job_on(8, 4), options);
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
  const std::string culprit = node_name(sim, 1);
  sim.slow_links(culprit, {.send = 3, .receive = 1, .inside = 1});
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  sim.run_until(sim.now() + 30);
  const std::vector<std::string> before = sim.view().slow_links;
  ASSERT_EQ(before.size(), 1U);
  sim.crash_core(5);
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(sim.view().slow_links, before);
  // Nothing is told anew but that it was known, and its end is seen.
  ASSERT_EQ(sim.events("verdict").size(), 2U) << verdicts(sim);
  EXPECT_EQ(sim.events("verdict").back().sentence,
            "slow since before the daemon was restarted: " + culprit);
  sim.slow_links(culprit, {});
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("recovery").empty(); }, 60));
  EXPECT_TRUE(sim.view().slow_links.empty());
  for (const auto& [ends, row] : sim.disk().slow_links) {
    EXPECT_EQ(row.slowdown, 1);
  }
  sim.crash_core(5);
  sim.run_until(sim.now() + 60);
  EXPECT_TRUE(sim.view().slow_links.empty());
  EXPECT_EQ(sim.events("verdict").size(), 2U) << verdicts(sim);
}

TEST(Links, APlanMadeForASlowNicIsNotMadeAgainAfterARestart) {
  Sim sim(job_on(8, 4), automatic());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
  const std::string culprit = node_name(sim, 1);
  sim.slow_links(culprit, {.send = 40, .receive = 40, .inside = 1});
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2); }, 200)) << told(sim, "decision");
  ASSERT_TRUE(sim.run_till([&] { return watching(sim) && sim.settled(); }, 60));
  sim.run_until(sim.now() + 60);
  const Epoch planned = epoch(sim);
  const std::size_t decisions = sim.events("decision").size();
  sim.crash_core(5);
  sim.run_until(sim.now() + 120);
  EXPECT_EQ(epoch(sim), planned);
  EXPECT_EQ(sim.events("decision").size(), decisions) << told(sim, "decision");
  // Its recovery is decided on, even when it happens while the daemon is away.
  sim.crash_core(30);
  sim.slow_links(culprit, {});
  sim.run_until(sim.now() + 200);
  EXPECT_FALSE(sim.events("recovery").empty());
}

}  // namespace
}  // namespace tapas::daemon::sim
