// A new plan on trial while other things change.
#include "tests/scenario/sim.h"
#include "tests/scenario/story.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace tapas::daemon::sim {
namespace {

/// Runs until node 1 is slow and the plan for that is the running one.
void switch_for_node_1(Sim& sim) {
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  sim.slow(node_name(sim, 1), 1.6);
  ASSERT_TRUE(sim.run_till([&] { return sim.running_epoch() == Epoch(2); }, 60));
}

const DecisionRow& first_switch(const Sim& sim) {
  for (const auto& [number, row] : sim.disk().decisions) {
    if (row.epoch == Epoch(2)) {
      return row;
    }
  }
  throw std::logic_error("no decision led to plan 2");
}

TEST(Trials, AFaultDuringTheTrialIsNotThePlansFault) {
  for (std::uint64_t late = 0; late <= 6; ++late) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(fmt::format("{} steps after the switch, seed {}", late, seed));
      Options options = automatic();
      options.seed = seed;
      options.config.cooldown_s = 5;
      Sim sim(job_on(8), options);
      switch_for_node_1(sim);
      const std::uint64_t step = sim.last_step();
      ASSERT_TRUE(sim.run_till([&] { return sim.last_step() >= step + late; }, 60));
      sim.slow(node_name(sim, 6), 2.2);
      sim.run_until(sim.now() + 150);
      EXPECT_EQ(sim.disk().automatic_switches.at(Epoch(2)).rests_until_s, 0) << told(sim, "verify");
      EXPECT_NE(text(first_switch(sim), "verify"), "rolled_back");
      // Both are answered in the end.
      EXPECT_GE(epoch(sim), Epoch(3)) << told(sim, "decision");
      EXPECT_EQ(sim.core().decisions("small").front().reason_code, "micro_replan")
          << told(sim, "decision");
    }
  }
}

TEST(Trials, AFaultBeforeAnythingMovedJoinsThePlan) {
  for (const std::uint64_t third : {1000U, 8U, 9U, 10U}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(fmt::format("third fault after {} steps, seed {}", third, seed));
      Options options = automatic();
      options.seed = seed;
      Sim sim(job_on(16, 4), options);
      ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
      const std::uint64_t first = sim.last_step() + 20;
      sim.odd_steps([&](std::uint64_t step) {
        sim.slow(node_name(sim, 1), step >= first ? 1.5 : 1.0);
        sim.slow(node_name(sim, 10), step >= first + 4 ? 1.4 : 1.0);
        sim.slow(node_name(sim, 13), step >= first + third ? 1.6 : 1.0);
        return OddStep{};
      });
      ASSERT_TRUE(sim.run_till([&] { return epoch(sim) > Epoch(1); }, 100));
      sim.run_until(sim.now() + 0.5);  // until the journal has it
      const std::string done = sim.events("plan_active").back().sentence;
      EXPECT_NE(done.find(node_name(sim, 1)), std::string::npos) << done;
      EXPECT_NE(done.find(node_name(sim, 10)), std::string::npos) << done;
      // Only once: the third waits for its turn.
      EXPECT_EQ(sim.events("switch_aborted").size(), 1U) << told(sim, "switch_aborted");
      EXPECT_NE(text(first_switch(sim), "switch").find("another node"), std::string::npos);
    }
  }
}

TEST(Trials, ARecoveryDuringTheTrialIsNotThePlansFault) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Options options = automatic();
    options.seed = seed;
    options.config.cooldown_s = 5;
    Sim sim(job_on(8), options);
    switch_for_node_1(sim);
    sim.slow(node_name(sim, 1), 1.0);
    sim.run_until(sim.now() + 150);
    EXPECT_EQ(sim.disk().automatic_switches.at(Epoch(2)).rests_until_s, 0) << told(sim, "verify");
    EXPECT_EQ(sim.core().decisions("small").front().reason_code, "recovery")
        << told(sim, "decision");
  }
}

TEST(Trials, ATrialGoesOnAfterARestartOfTheDaemon) {
  for (const bool worse : {false, true}) {
    SCOPED_TRACE(worse);
    Sim sim(job_on(8), automatic());
    switch_for_node_1(sim);
    sim.slow_everything(worse ? 2.0 : 1.0);
    sim.run_until(sim.now() + 2);
    ASSERT_TRUE(sim.disk().trial.open);
    EXPECT_EQ(text(first_switch(sim), "verify"), "pending");
    sim.crash_core(10);
    ASSERT_TRUE(sim.run_till([&] { return !sim.events("verify").empty(); }, 150));
    sim.run_until(sim.now() + 20);
    EXPECT_FALSE(sim.disk().trial.open);
    EXPECT_EQ(text(first_switch(sim), "verify"), worse ? "rolled_back" : "kept");
    EXPECT_EQ(epoch(sim), Epoch(worse ? 3 : 2));
  }
}

}  // namespace
}  // namespace tapas::daemon::sim
