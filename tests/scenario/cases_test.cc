// What went wrong for others, in kind: see the table in README.md.
#include "daemon/control/metrics.h"
#include "tests/scenario/sim.h"
#include "tests/scenario/story.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tapas::daemon::sim {
namespace {

constexpr double kStepS = 1.4;
// wire::StepFlag bits.
constexpr std::uint32_t kFirstStep = 1U << 0U;
constexpr std::uint32_t kCheckpoint = 1U << 2U;
constexpr std::uint32_t kEvaluation = 1U << 3U;

/// 16 nodes, four stages, four replicas; 1.4 s a step.
std::shared_ptr<const solver::Job> rig(std::uint32_t spares = 0) {
  return job_on(16, 4, 46, spares, 2.0);
}
Options rig_options() {
  Options options = automatic();
  options.jitter = 0.006;
  options.step_scale_s = kStepS;
  return options;
}

void run_to_step(Sim& sim, std::uint64_t step) {
  ASSERT_TRUE(sim.run_till([&] { return sim.last_step() >= step; }, 20 * kStepS * 1000)) << step;
}

void expect_quiet(const Sim& sim) {
  EXPECT_EQ(told(sim, "verdict"), "");
  EXPECT_EQ(told(sim, "agent_lost"), "");
  EXPECT_EQ(epoch(sim), Epoch(1));
}

TEST(Cases, OddStepsAreNotSlowSteps) {
  for (const bool tagged : {true, false}) {
    SCOPED_TRACE(tagged ? "tagged" : "not tagged");
    Sim sim(rig(), rig_options());
    sim.odd_steps([&](std::uint64_t step) {
      OddStep odd;
      if (step == 1) {
        odd.extra_s = 95;
        odd.flags = tagged ? kFirstStep : 0;
      } else if (step > 100 && step % 100 == 1) {
        odd.extra_s = 90;
        odd.flags = tagged ? kEvaluation : 0;
      }
      if (step == 57) {
        odd.lost.insert(RankId(12));
      }
      return odd;
    });
    run_to_step(sim, 700);
    expect_quiet(sim);
    sim.slow_device(RankId(12), 1.4);
    // The next step is the evaluation, then five plain ones.
    ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 200));
    EXPECT_LE(sim.last_step(), 701U + 6U);
    EXPECT_EQ(sim.events("verdict").front().node, node_name(sim, 6));
    EXPECT_EQ(text(sim.events("verdict").front(), "ranks"), "12");
  }
}

TEST(Cases, CheckpointSilenceIsNotDeath) {
  for (const bool tagged : {true, false}) {
    SCOPED_TRACE(tagged ? "tagged" : "not tagged");
    Sim sim(rig(), rig_options());
    sim.odd_steps([&](std::uint64_t step) {
      OddStep odd;
      if (step % 50 == 0) {
        odd.extra_s = 9 * kStepS + 240;
        odd.flags = tagged ? kCheckpoint : 0;
      }
      return odd;
    });
    run_to_step(sim, 210);
    expect_quiet(sim);
  }
}

TEST(Cases, PackedBatchesBlameNobodyAndARealFaultIsStillFound) {
  Options options = rig_options();
  options.jitter = 0.115;
  options.step_scale_s = 0.28;  // the same job on a faster clock: fewer heartbeats to play
  Sim sim(rig(), options);
  const double sigma = std::sqrt(std::log(1 + 0.148 * 0.148));
  std::lognormal_distribution<double> length(-sigma * sigma / 2, sigma);
  sim.odd_steps([&](std::uint64_t) {
    OddStep odd;
    odd.job_factor = length(sim.random());
    return odd;
  });
  run_to_step(sim, 2500);
  EXPECT_LE(sim.events("verdict").size(), 3U) << told(sim, "verdict");
  for (const EventRow& row : sim.events("verdict")) {
    EXPECT_EQ(row.node, "") << row.sentence;
  }
  EXPECT_EQ(epoch(sim), Epoch(1));
  sim.slow_device(RankId(20), 1.25);
  run_to_step(sim, 2800);
  bool blamed = false;
  for (const EventRow& row : sim.events("verdict")) {
    blamed = blamed || row.node == node_name(sim, 10);
    EXPECT_TRUE(row.node.empty() || row.node == node_name(sim, 10)) << row.sentence;
  }
  EXPECT_TRUE(blamed) << told(sim, "verdict");
}

TEST(Cases, PackedBatchesThatTellTheirTokensShowARealFaultSoon) {
  Options options = rig_options();
  options.jitter = 0.01;
  options.step_scale_s = 0.28;
  Sim sim(rig(), options);
  std::lognormal_distribution<double> length(0, 0.115);
  sim.odd_steps([&](std::uint64_t) {
    OddStep odd;
    odd.job_factor = length(sim.random());
    for (std::uint32_t rank = 0; rank < 32; ++rank) {
      odd.work[RankId(rank)] = length(sim.random());
    }
    return odd;
  });
  run_to_step(sim, 1000);
  EXPECT_EQ(told(sim, "verdict"), "");
  sim.slow_device(RankId(20), 1.25);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  EXPECT_LE(sim.last_step(), 1012U);
  EXPECT_EQ(sim.events("verdict").front().node, node_name(sim, 10));
  EXPECT_EQ(text(sim.events("verdict").front(), "ranks"), "20");
}

TEST(Cases, TheLateDataLoaderIsNamedNotThoseThatWaitForIt) {
  Sim sim(rig(), rig_options());
  double late_s = 0;
  sim.odd_steps([&](std::uint64_t step) {
    OddStep odd;
    odd.extra_s = odd.input_s[RankId(3)] = late_s;
    if (step % 50 == 1 && step > 50) {  // loaders stall after a checkpoint
      odd.extra_s = odd.input_s[RankId(9)] = 3;
    }
    return odd;
  });
  run_to_step(sim, 300);
  expect_quiet(sim);
  late_s = 0.4;
  run_to_step(sim, 500);
  ASSERT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  const EventRow verdict = sim.events("verdict").front();
  EXPECT_EQ(verdict.node, node_name(sim, 1));
  EXPECT_EQ(text(verdict, "ranks"), "3");
  EXPECT_EQ(text(verdict, "cause"), "input");
  EXPECT_NEAR(number(verdict, "level_after_s"), 0.4, 0.1);
  EXPECT_LE(number(verdict, "detect_steps"), 15);
  const DecisionRow decision = sim.core().decisions("small").front();
  EXPECT_EQ(decision.reason_code, "input");
  EXPECT_NE(decision.sentence.find("the plan stays"), std::string::npos) << decision.sentence;
  EXPECT_EQ(epoch(sim), Epoch(1));
  late_s = 0;
  run_to_step(sim, 600);
  ASSERT_EQ(sim.events("recovery").size(), 1U) << told(sim, "recovery");
  EXPECT_EQ(sim.events("recovery").front().node, node_name(sim, 1));
  EXPECT_EQ(text(sim.events("recovery").front(), "cause"), "input");
  EXPECT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
}

TEST(Cases, ALateDataLoaderIsRememberedOverARestartUntilItsProcessesEnd) {
  Sim sim(rig(), rig_options());
  double late_s = 0;
  sim.odd_steps([&](std::uint64_t) {
    OddStep odd;
    odd.extra_s = odd.input_s[RankId(3)] = late_s;
    return odd;
  });
  const std::string node = node_name(sim, 1);
  const auto written = [&] { return sim.disk().late_loaders.at({node, 1}).slowdown; };
  run_to_step(sim, 300);
  late_s = 0.4;
  run_to_step(sim, 400);
  ASSERT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  EXPECT_NEAR(written(), 1 + 0.4 / kStepS, 0.05);
  sim.crash_core(5);
  run_to_step(sim, 600);
  // Known as before: neither it nor the longer step is told as something new.
  ASSERT_EQ(sim.events("verdict").size(), 2U) << told(sim, "verdict");
  EXPECT_EQ(sim.events("verdict").back().sentence,
            "data loaders late since before the daemon was restarted: " + node);
  // It is well before the daemon is back, and nobody waits any more.
  late_s = 0;
  sim.crash_core(5);
  run_to_step(sim, 700);
  ASSERT_EQ(sim.events("recovery").size(), 1U) << told(sim, "recovery");
  EXPECT_EQ(sim.events("recovery").front().node, node);
  EXPECT_EQ(written(), 1);
  late_s = 0.4;
  run_to_step(sim, 800);
  EXPECT_GT(written(), 1.2);
  // The processes end while no daemon is there to see it.
  const std::size_t told_before = sim.events("verdict").size();
  sim.crash_core(5);
  late_s = 0;
  sim.restart_job();
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(written(), 1);
  EXPECT_EQ(sim.events("verdict").size(), told_before) << told(sim, "verdict");
}

TEST(Cases, MetricsStayFewOverManyRestarts) {
  // Many nodes are slow to send, and the job starts anew fifty times.
  Sim sim(job_on(128, 4, 46, 0, 2.0), rig_options());
  for (std::uint32_t node = 0; node < 128; node += 4) {
    sim.slow_links(node_name(sim, node), {.send = 3});
  }
  std::set<std::string> sessions;
  for (int restart = 0; restart < 50; ++restart) {
    run_to_step(sim, sim.last_step() + 2);
    sessions.insert(fmt::format("{:016x}", sim.view().session));
    sim.restart_job();
  }
  run_to_step(sim, 2);
  EXPECT_GE(sessions.size(), 40U);
  const std::string text = metrics_text(sim.status(), {}, sim.status().rejected, 0);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
  for (const std::string& session : sessions) {
    EXPECT_EQ(text.find(session), std::string::npos);
  }
}

TEST(Cases, WhenAllLoadersAreLateNobodyIsNamed) {
  Sim sim(rig(), rig_options());
  double late_s = 0;
  sim.odd_steps([&](std::uint64_t) {
    OddStep odd;
    odd.extra_s = late_s;
    for (std::uint32_t rank = 0; rank < 32; ++rank) {
      odd.input_s[RankId(rank)] = late_s;
    }
    return odd;
  });
  run_to_step(sim, 300);
  late_s = 0.4;
  run_to_step(sim, 500);
  ASSERT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  const EventRow verdict = sim.events("verdict").front();
  EXPECT_EQ(verdict.node, "");
  EXPECT_EQ(text(verdict, "cause"), "job_wide");
  EXPECT_NE(verdict.sentence.find("wait for input"), std::string::npos) << verdict.sentence;
  EXPECT_EQ(epoch(sim), Epoch(1));
}

// Where records do not tell what a rank waits for its input, all that shows is a longer step.
TEST(Cases, ALateDataLoaderThatNobodyReportsBlamesNoneOfThoseThatWaitForIt) {
  Sim sim(rig(), rig_options());
  run_to_step(sim, 300);
  sim.slow_everything(1 + 0.4 / kStepS);
  run_to_step(sim, 500);
  ASSERT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  const EventRow verdict = sim.events("verdict").front();
  EXPECT_EQ(verdict.node, "");
  EXPECT_EQ(sim.core().decisions("small").front().reason_code, "job_wide");
  EXPECT_NE(verdict.sentence.find("input"), std::string::npos) << verdict.sentence;
  EXPECT_EQ(epoch(sim), Epoch(1));
}

TEST(Cases, EverythingSlowForHoursAndNobodyIsGuilty) {
  Options options = rig_options();
  options.step_scale_s = 5;
  Sim sim(job_on(8), options);
  run_to_step(sim, 150);
  sim.slow_everything(2.2);
  sim.run_until(sim.now() + 2 * 3600);
  EXPECT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  EXPECT_EQ(sim.events("verdict").front().node, "");
  sim.slow_everything(1.0);
  sim.run_until(sim.now() + 120);
  EXPECT_EQ(sim.events("recovery").size(), 1U) << told(sim, "recovery");
  const DecisionRow decision = sim.core().decisions("small").front();
  EXPECT_EQ(decision.reason_code, "job_wide");
  EXPECT_GT(number(decision, "expected_loss_s"), 0);
  for (int change = 0; change < 6; ++change) {
    sim.slow_everything(change % 2 == 0 ? 2.2 : 1.0);
    sim.run_until(sim.now() + 20 * 60);
  }
  EXPECT_LE(sim.events("verdict").size(), 1U + 6U) << told(sim, "verdict");
  for (const EventRow& row : sim.events("verdict")) {
    EXPECT_EQ(row.node, "") << row.sentence;
  }
  EXPECT_EQ(epoch(sim), Epoch(1));
}

TEST(Cases, ASlowDriftIsFoundBeforeItHasCostMuch) {
  Sim sim(rig(), rig_options());
  ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100));
  run_to_step(sim, 150);
  double drift = 0;
  sim.odd_steps([&](std::uint64_t step) {
    drift = std::min(0.0002 * static_cast<double>(step - 150), 0.20);
    sim.slow_device(RankId(21), 1 + drift);
    return OddStep{};
  });
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 1500));
  EXPECT_LT(drift, 0.12);
  EXPECT_EQ(sim.events("verdict").front().node, node_name(sim, 10)) << told(sim, "verdict");
  EXPECT_EQ(text(sim.events("verdict").front(), "ranks"), "21");
  run_to_step(sim, 1300);
  for (const EventRow& row : sim.events("verdict")) {
    EXPECT_EQ(row.node, node_name(sim, 10)) << row.sentence;
  }
}

TEST(Cases, OtherUnitsAreDroppedAndCountedNeverActedOn) {
  Sim sim(rig(), rig_options());
  sim.odd_steps([](std::uint64_t step) {
    OddStep odd;
    if (step > 200) {
      odd.in_ms.insert(RankId(5));
    }
    return odd;
  });
  run_to_step(sim, 200);
  const auto job = name_hash("small");
  const auto link = [&](double bytes, double transfer_s) {
    LinkSample sample{job, 0x5e55, name_hash(node_name(sim, 1)), RankId(0), RankId(2)};
    sample.bytes = bytes;
    sample.transfer_s = transfer_s;
    sim.tell(StepBatch{node_name(sim, 0), {}, {sample}});
  };
  // The differences of a rate that was taken for a counter.
  link(24531 - 16721, 0.001);
  link(24493 - 24531, 0.001);
  link(12129 - 24493, 0.001);
  link(1e6, -3);
  run_to_step(sim, 400);
  expect_quiet(sim);
  EXPECT_TRUE(sim.view().slow_links.empty());
  EXPECT_NEAR(static_cast<double>(sim.core().status({}).rejected.at("implausible")), 203, 4);
  // The others are still judged.
  sim.slow_device(RankId(12), 1.4);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  EXPECT_EQ(sim.events("verdict").front().node, node_name(sim, 6));
}

TEST(Cases, BlameStaysWithTheNodeWhenTheJobIsStartedAnew) {
  Options options = rig_options();
  options.config.auto_replan = false;
  Sim sim(rig(), options);
  run_to_step(sim, 200);
  sim.slow(node_name(sim, 5), 1.3);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  run_to_step(sim, 300);
  sim.restart_job();  // steps count from 1 again
  run_to_step(sim, 100);
  const StatusView status = sim.core().status({});
  for (const AgentView& agent : status.agents) {
    EXPECT_EQ(agent.slowdown > 1, agent.node == node_name(sim, 5)) << agent.node;
  }
  for (const EventRow& row : sim.events("verdict")) {
    EXPECT_EQ(row.node, node_name(sim, 5)) << row.sentence;
  }
  for (const auto& [reason, count] : status.rejected) {
    // Of the first steps of either session, before it is known who reports.
    EXPECT_TRUE(reason == "stale_session" || reason == "late_step") << reason;
    EXPECT_LT(count, 32U) << reason;
  }
  // And is lifted when the node is well in the new session.
  sim.slow(node_name(sim, 5), 1.0);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("recovery").empty(); }, 60));
}

TEST(Cases, ADeviceIsKnownByItsNameNotByItsPlace) {
  Options options = rig_options();
  options.config.auto_replan = false;
  Sim sim(rig(), options);
  // The node's first rank runs on the card that others list second.
  sim.seat(RankId(6), "GPU-B");
  sim.seat(RankId(7), "GPU-A");
  run_to_step(sim, 100);
  sim.slow_device(RankId(6), 1.25);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  const EventRow verdict = sim.events("verdict").front();
  EXPECT_EQ(text(verdict, "devices"), "GPU-B");
  EXPECT_EQ(text(verdict, "ranks"), "6");

  // After a reboot the cards change places: blame goes with the card.
  sim.seat(RankId(6), "GPU-A");
  sim.seat(RankId(7), "GPU-B");
  sim.slow_device(RankId(6), 1.0);
  sim.slow_device(RankId(7), 1.25);
  sim.restart_agent(node_name(sim, 3));
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(sim.events("device_changed").size(), 2U) << told(sim, "device_changed");
  EXPECT_EQ(sim.disk().devices.at("GPU-B").index, 1U);
  EXPECT_TRUE(sim.disk().devices.at("GPU-B").slow);
  EXPECT_FALSE(sim.disk().devices.contains("GPU-A"));
  EXPECT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  EXPECT_TRUE(sim.events("recovery").empty()) << told(sim, "recovery");

  // A new card in its place starts clean.
  sim.seat(RankId(7), "GPU-C");
  sim.slow_device(RankId(7), 1.0);
  sim.restart_agent(node_name(sim, 3));
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(sim.core().status({}).agents[3].slowdown, 1.0);
  EXPECT_EQ(sim.events("verdict").size(), 1U) << told(sim, "verdict");
  // With the slow card its episode has ended; what is known of the card is kept.
  ASSERT_EQ(sim.events("recovery").size(), 1U) << told(sim, "recovery");
  EXPECT_EQ(sim.events("recovery").front().node, node_name(sim, 3));
  EXPECT_TRUE(sim.disk().devices.at("GPU-B").slow);
}

TEST(Cases, AKilledDaemonComesBackInTheMiddleOfAnEpisode) {
  Options options = rig_options();
  options.config.cooldown_s = 5;
  options.config.flap_quarantine_s = 3600;
  Sim sim(rig(), options);
  run_to_step(sim, 150);
  // Node 3 flaps: quarantined. Node 9 is pinned. Node 6 is slow, the plan is made for that.
  const auto flap = [&] {
    sim.slow(node_name(sim, 3), 1.6);
    sim.run_until(sim.now() + 60);
    sim.slow(node_name(sim, 3), 1.0);
    sim.run_until(sim.now() + 120);
  };
  flap();
  flap();
  sim.send({1, "uid 0 (root)", Pin{node_name(sim, 9), "profiling"}});
  sim.slow(node_name(sim, 6), 1.5);
  const auto planned = [&] {
    const auto row = sim.disk().devices.find(node_name(sim, 6) + "/0");
    return row != sim.disk().devices.end() && row->second.planned_at > 1;
  };
  ASSERT_TRUE(sim.run_till(planned, 400)) << told(sim, "decision");
  ASSERT_TRUE(sim.run_till([&] { return watching(sim) && sim.settled(); }, 60));
  sim.run_until(sim.now() + 20);
  const Epoch before = epoch(sim);
  EXPECT_EQ(sim.disk().devices.at(node_name(sim, 3) + "/0").episodes, 2U);
  const std::uint64_t step = sim.last_step();

  sim.crash_core(120);
  sim.run_until(sim.now() + 110);
  EXPECT_GT(sim.last_step(), step + 60);  // training goes on
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(epoch(sim), before);
  StatusView status = sim.core().status({});
  for (const AgentView& agent : status.agents) {
    EXPECT_EQ(agent.pinned, agent.node == node_name(sim, 9)) << agent.node;
    EXPECT_EQ(agent.slowdown > 1, agent.node == node_name(sim, 6)) << agent.node;
  }
  sim.run_until(sim.now() + 240);
  EXPECT_EQ(epoch(sim), before) << told(sim, "decision");
  EXPECT_TRUE(sim.settled());
  // The quarantine is back, too: node 6 gets well, and still nothing goes to node 3.
  const auto held = [](const Sim& from, std::uint32_t node) {
    std::vector<std::uint32_t> cuts;
    const solver::Plan& plan = *from.core().plan("small");
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      for (std::uint32_t s = 0; s < plan.stages(); ++s) {
        if (plan.placement[r][s].node == NodeId(node)) {
          const solver::LayerRange range = solver::stage_layers(plan, r, s, 48);
          cuts = {range.first, range.last};
        }
      }
    }
    return cuts;
  };
  const auto layers = held(sim, 3);
  sim.slow(node_name(sim, 6), 1.0);
  sim.run_until(sim.now() + 120);
  EXPECT_EQ(held(sim, 3), layers);
}

TEST(Cases, AReconnectStormEndsWithAllAgentsBackAndNothingSaidAboutNodes) {
  Sim sim(rig(), rig_options());
  run_to_step(sim, 60);
  const std::size_t lines = sim.disk().events.size();
  for (std::uint32_t again = 0; again < 100; ++again) {
    for (std::uint32_t node = 0; node < 16; ++node) {
      (again + node) % 2 == 0 ? sim.cut(node_name(sim, node))
                              : sim.restart_agent(node_name(sim, node));
    }
    sim.run_until(sim.now() + 0.6);
  }
  sim.crash_core(60);
  sim.run_until(sim.now() + 61);
  const auto all_back = [&] {
    const std::vector<AgentView> agents = sim.core().status({}).agents;
    return std::all_of(agents.begin(), agents.end(),
                       [](const AgentView& agent) { return agent.connected; });
  };
  ASSERT_TRUE(sim.run_till(all_back, 40));
  ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 40));
  sim.run_until(sim.now() + 60);
  EXPECT_EQ(told(sim, "verdict"), "");
  EXPECT_EQ(epoch(sim), Epoch(1));
  // A line when one comes back, one when it was lost: no more than that.
  EXPECT_LE(sim.disk().events.size() - lines, 2U * 16U * 102U);
}

TEST(Cases, OneNodeTooManyIsParked) {
  Options options = rig_options();
  options.config.auto_replan = false;
  Sim sim(rig(1), options);
  run_to_step(sim, 100);
  ASSERT_FALSE(uses(sim, 16));
  sim.send({1, "uid 0 (root)", Drain{node_name(sim, 3), "ECC errors"}});
  ASSERT_TRUE(sim.run_till([&] { return epoch(sim) == Epoch(2) && sim.settled(); }, 120))
      << told(sim, "decision");
  EXPECT_TRUE(uses(sim, 16));
  EXPECT_FALSE(uses(sim, 3));
  // The drained node and the spare announce themselves in the same second, twice; a stranger, too.
  for (int again = 0; again < 2; ++again) {
    sim.restart_agent(node_name(sim, 3));
    sim.restart_agent(node_name(sim, 16));
    sim.tell(AgentHello{"stranger", 1, Term{}, {}});
    sim.run_until(sim.now() + 20);
  }
  ASSERT_TRUE(sim.run_till([&] { return sim.settled(); }, 60));
  EXPECT_EQ(epoch(sim), Epoch(2));
  EXPECT_FALSE(uses(sim, 3));
  for (const AgentView& agent : sim.core().status({}).agents) {
    EXPECT_EQ(agent.drained, agent.node == node_name(sim, 3)) << agent.node;
  }
  // As long as it is drained it is no spare, even where one would help.
  sim.send({2, "uid 0 (root)", SetAuto{true, "test"}});
  sim.slow(node_name(sim, 8), 2.0);
  sim.run_until(sim.now() + 120);
  EXPECT_FALSE(uses(sim, 3));
  sim.send({3, "uid 0 (root)", Undrain{node_name(sim, 3)}});
  sim.run_until(sim.now() + 1);
  sim.send({4, "uid 0 (root)", Replan{"small", false}});
  ASSERT_TRUE(sim.run_till([&] { return uses(sim, 3); }, 120)) << told(sim, "decision");
  EXPECT_FALSE(uses(sim, 8));
}

TEST(Cases, LoadsThatSwingBetweenTwoNodesAreNotChased) {
  for (const double excess : {0.5, 1.0}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(fmt::format("excess {}, seed {}", excess, seed));
      Options options = rig_options();
      options.seed = seed;
      Sim sim(job_on(8, 2, 14, 0, 2.0), options);
      run_to_step(sim, 60);
      const double shares[] = {0.50, 0.70, 0.60, 0.75, 0.65, 0.80, 0.70};
      for (int i = 0; i < 240; ++i) {
        sim.slow(node_name(sim, 2), 1 + excess * shares[i % 7]);
        sim.slow(node_name(sim, 5), 1 + excess * (1 - shares[i % 7]));
        sim.run_until(sim.now() + 15);
      }
      // One plan. Where the first was made for an even share that soon was two to one for good, one
      // more that follows.
      EXPECT_LE(epoch(sim), Epoch(excess < 1 ? 2 : 3)) << told(sim, "decision");
    }
  }
}

TEST(Cases, ARankAtTheEdgeIsPlannedForOnce) {
  Sim sim(job_on(8, 2, 14, 0, 2.0), rig_options());
  run_to_step(sim, 60);
  const double edge[] = {1.19, 1.21, 1.18, 1.22};
  for (int i = 0; i < 240; ++i) {
    sim.slow_device(RankId(8), edge[i % 4]);
    sim.run_until(sim.now() + 15);
  }
  EXPECT_LE(epoch(sim), Epoch(2)) << told(sim, "decision");
}

TEST(Cases, AStaleMemberExpiresWithoutAFlood) {
  Sim sim(rig(1), rig_options());
  run_to_step(sim, 60);
  const std::size_t lines = sim.disk().events.size();
  sim.kill_agent(node_name(sim, 16));
  sim.run_until(sim.now() + 600);
  EXPECT_EQ(sim.events("agent_lost").size(), 1U);
  EXPECT_LE(sim.disk().events.size() - lines, 4U);
  for (const AgentView& agent : sim.core().status({}).agents) {
    EXPECT_EQ(agent.connected, agent.node != node_name(sim, 16)) << agent.node;
  }
  EXPECT_EQ(epoch(sim), Epoch(1));
}

TEST(Cases, OddCountsGetAPlanOrAPlainNo) {
  struct Shape {
    std::uint32_t nodes;
    std::uint32_t stages;
  };
  for (const Shape shape : {Shape{7, 7}, Shape{3, 3}, Shape{24, 8}}) {
    SCOPED_TRACE(fmt::format("{} nodes, {} stages", shape.nodes, shape.stages));
    Sim sim(job_on(shape.nodes, shape.stages, 46), rig_options());
    ASSERT_TRUE(sim.run_till([&] { return watching(sim); }, 100)) << sim.view().phase;
    ASSERT_EQ(sim.core().plan("small")->stages(), shape.stages);
    sim.run_until(sim.now() + 60);
    sim.slow(node_name(sim, 1), 1.5);
    sim.run_until(sim.now() + 200);
    ASSERT_FALSE(sim.core().decisions("small").empty());
    EXPECT_NE(sim.core().decisions("small").front().sentence, "");
    EXPECT_TRUE(sim.settled());
    // Every node is needed: a drain says so.
    sim.send({1, "uid 0 (root)", Drain{node_name(sim, 0), "fan"}});
    sim.run_until(sim.now() + 30);
    ASSERT_EQ(sim.replies().size(), 1U);
    ASSERT_TRUE(sim.replies()[0].outcome);
    EXPECT_NE(sim.replies()[0].outcome->find("spare"), std::string::npos)
        << *sim.replies()[0].outcome;
  }
}

TEST(Cases, ClocksThatJumpHurtNobody) {
  Sim sim(rig(), rig_options());
  sim.set_clock(node_name(sim, 11), 300);  // all the time
  run_to_step(sim, 150);
  sim.set_clock(node_name(sim, 4), 60);
  run_to_step(sim, 200);
  sim.set_clock(node_name(sim, 4), -90);
  run_to_step(sim, 250);
  expect_quiet(sim);
  for (const auto& [reason, count] : sim.core().status({}).rejected) {
    EXPECT_TRUE(reason == "late_step" && count < 32U) << reason << " " << count;  // of the start
  }
  for (const AgentView& agent : sim.core().status({}).agents) {
    const double off_s = agent.node == node_name(sim, 11)  ? 300
                         : agent.node == node_name(sim, 4) ? -90
                                                           : 0;
    EXPECT_NEAR(agent.clock_off_s, off_s, 1e-6) << agent.node;
  }
  // Durations and ages are still right.
  sim.slow(node_name(sim, 4), 1.5);
  ASSERT_TRUE(sim.run_till([&] { return !sim.events("verdict").empty(); }, 60));
  EXPECT_EQ(sim.events("verdict").front().node, node_name(sim, 4));
  EXPECT_NEAR(number(sim.events("verdict").front(), "detect_s"), 5 * kStepS, 4 * kStepS);
}

}  // namespace
}  // namespace tapas::daemon::sim
