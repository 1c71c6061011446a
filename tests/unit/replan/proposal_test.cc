// What every proposal must respect: pins, drains, what the job's runtime can do, limits.
#include "cases.h"
#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/replan/micro_replan.h"
#include "tests/replan/exact.h"
#include "tests/replan/value.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

using testing::Case;
using testing::Draw;
using testing::even_case;
using testing::Judge;
using testing::random_case;
using testing::slow_links;
using testing::slow_node;

ReplanLimits evaluations(std::uint64_t count, std::uint64_t seed = 1) {
  ReplanLimits limits;
  limits.evaluations = count;
  limits.seed = seed;
  return limits;
}

/// A search that goes on without timing anything would never end.
constexpr std::uint64_t kCircles = 100'000;

Proposal answer(const Case& what, ReplanLimits limits = {}) {
  std::uint64_t asked = 0;
  if (!limits.time_left_s) {
    limits.time_left_s = [&] { return ++asked > kCircles ? 0.0 : 1.0; };
  }
  auto proposal = micro_replan(what.job, what.request, limits);
  EXPECT_TRUE(proposal.has_value()) << proposal.error().message;
  EXPECT_LE(asked, kCircles) << "the search goes round in circles";
  return proposal ? *std::move(proposal) : Proposal();
}

bool uses(const Plan& plan, NodeId node) {
  return std::any_of(plan.placement.begin(), plan.placement.end(), [&](const auto& row) {
    return std::any_of(row.begin(), row.end(),
                       [&](const Position& position) { return position.node == node; });
  });
}

double gap_of(const Case& what, const Proposal& proposal) {
  Judge judge(what.job, what.request);
  const auto optimum = testing::exact_optimum(what.job, what.request, proposal.plan);
  EXPECT_TRUE(optimum.proven);
  return gap_to(judge.value(proposal.plan), optimum.value);
}

TEST(Proposal, IsAPlanAndASwitchThatTheCheckersAcceptAndNeverWorseThanNothing) {
  int improved = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Case what = random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    const Proposal proposal = answer(what, evaluations(200));
    EXPECT_EQ(plan_violations(what.job, proposal.plan), std::vector<std::string>{});
    EXPECT_EQ(switch_violations(what.job, what.request.current, proposal.plan),
              std::vector<std::string>{});
    EXPECT_EQ(proposal.reason.find("refused"), std::string::npos) << proposal.reason;
    Judge judge(what.job, what.request);
    EXPECT_FALSE(better(judge.value(what.request.current), judge.value(proposal.plan)));
    improved += proposal.improves ? 1 : 0;
  }
  EXPECT_GT(improved, 50);
}

TEST(Proposal, LeavesPinnedNodesTheirStagesLayersAndFlags) {
  int improved = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Case what = random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    Draw draw(seed);
    for (std::size_t n = 0; n < what.job.cluster.nodes.size(); ++n) {
      what.request.pinned.push_back(draw.between(0U, 3U) == 0);
    }
    const Plan& before = what.request.current;
    const Proposal proposal = answer(what, evaluations(200));
    const Plan& after = proposal.plan;
    const std::uint32_t layers = what.job.graph.layer_count();
    for (std::uint32_t r = 0; r < before.replicas(); ++r) {
      for (std::uint32_t s = 0; s < before.stages(); ++s) {
        const bool had = what.request.pinned[before.placement[r][s].node.value()];
        const bool has = what.request.pinned[after.placement[r][s].node.value()];
        if (had || has) {
          EXPECT_EQ(after.placement[r][s], before.placement[r][s]);
          const LayerRange range = stage_layers(before, r, s, layers);
          EXPECT_EQ(stage_layers(after, r, s, layers).first, range.first);
          EXPECT_EQ(stage_layers(after, r, s, layers).last, range.last);
          for (std::uint32_t l = range.first; l < range.last; ++l) {
            EXPECT_EQ(after.checkpoint_of(r)[l], before.checkpoint_of(r)[l]) << "layer " << l;
          }
        }
      }
    }
    improved += proposal.improves ? 1 : 0;
  }
  EXPECT_GT(improved, 25);
}

TEST(Proposal, ChangesOnlyWhatTheRuntimeCanChange) {
  struct Without {
    const char* what;
    bool Capabilities::*capability;
    int improved;
  };
  Without kinds[] = {{"replica splits", &Capabilities::replica_splits, 0},
                     {"microbatch counts", &Capabilities::microbatch_counts, 0},
                     {"recompute", &Capabilities::recompute, 0},
                     {"placement", &Capabilities::placement, 0},
                     {"narrower groups", &Capabilities::narrower_groups, 0}};
  for (Without& kind : kinds) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      Case what = random_case(1000 + seed);
      what.job.capabilities = {true, true, true, true, true};
      what.job.capabilities.*kind.capability = false;
      if (!check_plan(what.job, what.request.current)) {
        continue;  // the plan that runs needs it
      }
      SCOPED_TRACE(std::string("without ") + kind.what + ", case " + std::to_string(1000 + seed));
      const Plan& before = what.request.current;
      const Proposal proposal = answer(what, evaluations(150));
      const Plan& after = proposal.plan;
      const Capabilities& can = what.job.capabilities;
      for (std::uint32_t r = 0; r < before.replicas(); ++r) {
        EXPECT_TRUE(can.replica_splits || after.splits_of(r) == after.splits_of(0));
        EXPECT_TRUE(can.microbatch_counts || after.microbatches[r] == before.microbatches[r]);
        EXPECT_TRUE(can.recompute || after.checkpoint_of(r) == before.checkpoint_of(r));
        for (std::uint32_t s = 0; s < before.stages(); ++s) {
          const Position& from = before.placement[r][s];
          const Position& to = after.placement[r][s];
          EXPECT_TRUE(can.placement || from.node == to.node);
          EXPECT_TRUE(can.narrower_groups || from.devices.size() == to.devices.size());
        }
      }
      kind.improved += proposal.improves ? 1 : 0;
    }
    EXPECT_GT(kind.improved, 8) << kind.what;
  }
}

TEST(Proposal, TakesDrainedNodesOutWhileASpareIsFree) {
  for (const std::uint32_t spares : {1U, 2U, 3U}) {
    Case what = even_case({0, 3, 6}, 9, 2, spares);
    what.request.expected_episode_s = 1;  // whatever it costs
    what.request.state.drained.assign(what.job.cluster.nodes.size(), false);
    what.request.state.drained[1] = what.request.state.drained[5] = true;
    const Proposal proposal = answer(what);
    ASSERT_TRUE(proposal.improves) << proposal.reason;
    const int left =
        (uses(proposal.plan, NodeId(1)) ? 1 : 0) + (uses(proposal.plan, NodeId(5)) ? 1 : 0);
    EXPECT_EQ(left, spares == 1 ? 1 : 0) << proposal.reason;
  }
  // A drained spare is no spare.
  Case what = even_case({0, 3, 6}, 9, 2, 1);
  what.request.state.drained.assign(7, false);
  what.request.state.drained[6] = true;
  slow_node(what, NodeId(2), 3);
  EXPECT_FALSE(uses(answer(what).plan, NodeId(6)));
}

TEST(Proposal, RunsANarrowerGroupWhereOneDeviceIsFarBehind) {
  Case what = even_case({0, 8, 16}, 24, 1, 0);
  what.request.state.device_slowdown[what.job.cluster.rank_of(NodeId(1), 2).value()] = 4;
  const Proposal whole = answer(what);
  what.job.capabilities.narrower_groups = true;
  const Proposal narrower = answer(what);
  ASSERT_TRUE(narrower.improves) << narrower.reason;
  EXPECT_LT(narrower.step_after_s, 0.95 * whole.step_after_s) << narrower.reason;
  for (const Position& position : narrower.plan.placement[0]) {
    if (position.node == NodeId(1)) {
      EXPECT_EQ(position.devices.size(), 2U);
      EXPECT_EQ(std::count(position.devices.begin(), position.devices.end(), 2), 0);
    }
  }
  EXPECT_EQ(testing::breaches(what.job, what.request, narrower.plan), std::vector<std::string>{});

  Case healed = what;
  healed.request.current = narrower.plan;
  healed.request.state.device_slowdown.assign(what.job.cluster.device_count(), 1);
  const Proposal back = answer(healed);
  ASSERT_TRUE(back.improves) << back.reason;
  PlanEvaluator evaluator(what.job);
  EXPECT_NEAR(back.step_after_s, evaluator.step_time_s(what.request.current, {}), 1e-9);
  for (const Position& position : back.plan.placement[0]) {
    EXPECT_EQ(position.devices.size(), 4U);
  }
}

TEST(Proposal, UsesASpareOfTwoGroupsWholeOrNot) {
  int used = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Draw draw(seed);
    Case what = even_case({0, 3, 6, 9}, 12, 2, 1);
    what.request.current = testing::simple_plan(what.job, {0, 3, 6, 9}, 2, 2);
    for (std::uint32_t n = 0; n < 9; ++n) {
      what.job.cluster.nodes[n].spare = n >= 4;
    }
    const NodeId node(draw.between(0U, 3U));
    for (std::uint32_t d = draw.between(0U, 1U) == 0 ? 2 : 0; d < 4; ++d) {
      what.request.state.device_slowdown[what.job.cluster.rank_of(node, d).value()] = 2.5;
    }
    const Proposal proposal = answer(what, evaluations(500));
    ASSERT_TRUE(proposal.improves) << proposal.reason;
    std::vector<std::size_t> devices(9, 0);
    for (const auto& row : proposal.plan.placement) {
      for (const Position& position : row) {
        devices[position.node.value()] += position.devices.size();
      }
    }
    for (std::uint32_t n = 4; n < 9; ++n) {
      EXPECT_TRUE(devices[n] == 0 || devices[n] == 4) << proposal.reason;
      used += devices[n] == 4 ? 1 : 0;
    }
  }
  EXPECT_GT(used, 20);
}

TEST(Proposal, IsTheSameForASeed) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const Case what = random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    const Proposal a = answer(what, evaluations(250, seed));
    const Proposal b = answer(what, evaluations(250, seed));
    EXPECT_TRUE(testing::same_plan(a.plan, b.plan));
    EXPECT_EQ(a.reason, b.reason);
    EXPECT_EQ(a.stopped, b.stopped);
    EXPECT_EQ(a.plans_evaluated, b.plans_evaluated);
  }
}

/// Nothing of it is at its bound soon.
Case long_case() {
  Case what = even_case({0, 4, 8, 12}, 16, 3, 1);
  Draw draw(3);
  for (std::uint32_t n = 0; n < 12; ++n) {
    slow_node(what, NodeId(n), draw.between(1.0, 2.0));
  }
  slow_links(what, NodeId(5), {6, 3, 1});
  return what;
}

TEST(Proposal, EndsWithinAFewEvaluationsOfItsTime) {
  const Case what = long_case();
  std::uint64_t before = 0;
  for (std::uint64_t most = 0; most < 300; most += most < 40 ? 1 : 20) {
    std::uint64_t asked = 0;
    ReplanLimits limits;
    limits.evaluations = 1'000'000;
    limits.time_left_s = [&] { return ++asked > most ? 0.0 : 1.0; };
    const Proposal proposal = answer(what, limits);
    EXPECT_LE(asked, most + 40) << "asked on and on after its time was up";
    EXPECT_NE(proposal.stopped.find("time was up"), std::string::npos) << proposal.stopped;
    if (most > 0 && most <= 40) {
      EXPECT_LE(proposal.plans_evaluated, before + 60)
          << "between call " << most << " and the next";
    }
    before = proposal.plans_evaluated;
    EXPECT_EQ(testing::breaches(what.job, what.request, proposal.plan), std::vector<std::string>{});
  }
}

TEST(Proposal, EndsWithItsEvaluations) {
  const Case what = long_case();
  for (const std::uint64_t most : {1U, 10U, 100U, 1000U}) {
    const Proposal proposal = answer(what, evaluations(most));
    EXPECT_LE(proposal.plans_evaluated, most + 60);
    EXPECT_NE(proposal.stopped.find("replicas were timed"), std::string::npos) << proposal.stopped;
  }
}

TEST(Proposal, EndsWhenToldToStop) {
  const Case what = long_case();
  std::stop_source source;
  std::uint64_t asked = 0;
  ReplanLimits limits;
  limits.evaluations = 1'000'000;
  limits.stop = source.get_token();
  limits.time_left_s = [&] {
    if (++asked == 100) {
      source.request_stop();
    }
    return 1.0;
  };
  const Proposal proposal = answer(what, limits);
  const Plan& plan = what.request.current;
  // It still trims: each node and each cut once.
  EXPECT_LE(asked, 101U + plan.replicas() * plan.stages()) << "searched on";
  EXPECT_NE(proposal.stopped.find("told to stop"), std::string::npos) << proposal.stopped;
  EXPECT_EQ(testing::breaches(what.job, what.request, proposal.plan), std::vector<std::string>{});
}

TEST(Proposal, KnowsTheDirectionsOfAPathApart) {
  // The gradients of stage 0 go round from node 0 over 2 to 4 and back to 0.
  const Case healthy = even_case({0, 3}, 6, 3, 0);
  Case against = healthy;
  against.request.state.paths = {{NodeId(2), NodeId(0), 60}};
  const Proposal nothing = answer(against);
  EXPECT_FALSE(nothing.improves) << nothing.reason;
  EXPECT_DOUBLE_EQ(nothing.step_before_s, answer(healthy).step_before_s);

  Case along = healthy;
  along.request.state.paths = {{NodeId(0), NodeId(2), 60}};
  const Proposal repaired = answer(along);
  EXPECT_GT(repaired.step_before_s, 1.2 * nothing.step_before_s);
  ASSERT_TRUE(repaired.improves) << repaired.reason;
  EXPECT_NEAR(repaired.step_after_s, nothing.step_before_s, 1e-2 * nothing.step_before_s)
      << repaired.reason;
}

TEST(Proposal, PutsABadNicWhereItsDirectionCarriesLeast) {
  for (const NodeLinks& links : {NodeLinks{15, 1, 1}, NodeLinks{1, 15, 1}, NodeLinks{15, 15, 1}}) {
    Case what = even_case({0, 3, 6}, 9, 1, 0);
    slow_links(what, NodeId(1), links);
    const Proposal proposal = answer(what);
    ASSERT_TRUE(proposal.improves) << proposal.reason;
    EXPECT_NE(proposal.plan.placement[0][1].node, NodeId(1)) << "two links there, one at the ends";
    EXPECT_LE(gap_of(what, proposal), 1e-2);
  }
}

TEST(Proposal, GoesBackAfterARecovery) {
  int gone = 0;
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    Draw draw(seed);
    Case what = even_case({0, 3, 6}, 9, 2, seed % 2);
    slow_node(what, NodeId(draw.between(0U, 5U)), draw.between(1.5, 3.0));
    if (seed % 3 == 0) {
      slow_links(what, NodeId(draw.between(0U, 5U)), {draw.between(1.0, 20.0), 1, 1});
    }
    PlanEvaluator evaluator(what.job);
    const double healthy = evaluator.step_time_s(what.request.current, {});
    const Proposal away = answer(what, evaluations(1000));
    if (!away.improves) {
      continue;
    }
    ++gone;
    what.request.current = away.plan;
    what.request.state = {};
    const Proposal back = answer(what, evaluations(1000));
    EXPECT_LE(back.step_after_s, healthy * 1.001) << seed << ": " << back.reason;
  }
  EXPECT_GT(gone, 10);
}

TEST(Proposal, ExchangesNodeTypesOnlyWithinOneCollectiveLibrary) {
  for (const bool same : {true, false}) {
    Case what = even_case({0, 3, 6}, 9, 2, 1);
    Cluster& cluster = what.job.cluster;
    cluster.device_types.push_back(cluster.device_types[0]);
    cluster.device_types[1].name = "other";
    cluster.device_types[1].collective_library = same ? "nccl" : "hccl";
    cluster.node_types.push_back(cluster.node_types[0]);
    cluster.node_types[1].name = "other";
    cluster.node_types[1].device_type = 1;
    cluster.nodes[6].type = 1;
    slow_node(what, NodeId(4), 3);
    const Proposal proposal = answer(what);
    ASSERT_TRUE(proposal.improves) << proposal.reason;
    EXPECT_EQ(uses(proposal.plan, NodeId(6)), same) << proposal.reason;
    EXPECT_EQ(testing::breaches(what.job, what.request, proposal.plan), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace tapas::solver
