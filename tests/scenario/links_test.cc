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
  sim.run_until(sim.now() + 300);
  EXPECT_EQ(sim.events("verdict").size(), 1U) << verdicts(sim);
}

}  // namespace
}  // namespace tapas::daemon::sim
