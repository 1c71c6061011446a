#include "solver/replan/row_split.h"

#include "cases.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tapas::solver {
namespace {

using testing::Case;
using testing::Draw;

/// The slowest stage of the replica with these cuts, or of all replicas when they share them.
double slowest_s(Problem& problem, const Layout& layout, std::uint32_t replica,
                 const std::vector<std::uint32_t>& cuts) {
  double slowest = 0;
  for (std::uint32_t r = 0; r < problem.replicas(); ++r) {
    for (std::uint32_t s = 0; s < problem.stages() && (r == replica || problem.tied()); ++s) {
      const StageTime time = problem.stage_time(layout.unit(r, s), r, s, layout.microbatches(r),
                                                {cuts[s], cuts[s + 1]});
      slowest = std::max(slowest, time.fits ? time.total_s() : kForever);
    }
  }
  return slowest;
}

double least_s(Problem& problem, const Layout& layout, std::uint32_t replica, StageLimit limit) {
  double least = kForever;
  testing::for_each_cut(problem.layers(), problem.stages(), [&](std::vector<std::uint32_t> cuts) {
    cuts.push_back(problem.layers());
    if (testing::keeps_pinned(layout, replica, cuts) &&
        (limit.layers == 0 || cuts[limit.stage + 1] - cuts[limit.stage] <= limit.layers)) {
      least = std::min(least, slowest_s(problem, layout, replica, cuts));
    }
  });
  return least;
}

/// Equal layers on nodes of different speeds, from cuts that suit none of them.
Case equal_layers(std::uint64_t seed, bool pins) {
  Draw draw(seed);
  const std::uint32_t stages = draw.between(2U, 5U);
  const std::uint32_t layers = stages + draw.between(1U, 9U);
  std::vector<std::uint32_t> cuts{0};
  while (cuts.size() < stages) {
    cuts.push_back(
        draw.between(cuts.back() + 1, layers - stages + static_cast<std::uint32_t>(cuts.size())));
  }
  Case what = testing::even_case(cuts, layers, draw.between(1U, 3U), 0);
  what.job.capabilities.replica_splits = seed % 2 == 0;
  for (std::uint32_t n = 0; n < what.job.cluster.nodes.size(); ++n) {
    testing::slow_node(what, NodeId(n), draw.between(1.0, 3.0));
    what.request.pinned.push_back(pins && draw.between(0U, 4U) == 0);
  }
  return what;
}

TEST(RowSplit, OfEqualLayersIsTheBestOfAll) {
  Draw draw(5);
  int shorter = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Case what = equal_layers(seed, seed % 4 >= 2);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, what.request.pinned);
    const Layout layout(problem, 1800, 2);
    RowSplit split(problem);
    const std::uint32_t r = draw.between(0U, problem.replicas() - 1);
    const std::vector<std::uint32_t> before(layout.cuts(r).begin(), layout.cuts(r).end());
    const std::vector<std::uint32_t> cuts = split(layout, r);
    const double least = least_s(problem, layout, r, {});
    EXPECT_NEAR(slowest_s(problem, layout, r, cuts), least, 1e-9 * least);
    EXPECT_TRUE(testing::keeps_pinned(layout, r, cuts));
    shorter += cuts == before ? 0 : 1;
  }
  EXPECT_GT(shorter, 200);
}

TEST(RowSplit, HoldsAStageDownAtLeastCost) {
  Draw draw(6);
  int held_down = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Case what = equal_layers(seed, seed % 4 >= 2);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, what.request.pinned);
    const Layout layout(problem, 1800, 2);
    RowSplit split(problem);
    const std::uint32_t s = draw.between(0U, problem.stages() - 1);
    const StageLimit limit{s, draw.between(1U, layout.cuts(0)[s + 1] - layout.cuts(0)[s])};
    const double least = least_s(problem, layout, 0, limit);
    if (least == kForever) {
      continue;  // pins in the way
    }
    const std::vector<std::uint32_t> cuts = split(layout, 0, {&limit, 1});
    EXPECT_LE(cuts[s + 1] - cuts[s], limit.layers);
    EXPECT_NEAR(slowest_s(problem, layout, 0, cuts), least, 1e-9 * least);
    EXPECT_TRUE(testing::keeps_pinned(layout, 0, cuts));
    ++held_down;
  }
  EXPECT_GT(held_down, 200);
}

TEST(RowSplit, OfUnevenLayersIsNeverWorseThanBeforeAndMostlyTheBest) {
  int best = 0;
  int looked_at = 0;
  double worst = 1;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Case what = testing::random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, {});
    const Layout layout(problem, 1800, 2);
    RowSplit split(problem);
    for (std::uint32_t r = 0; r < (problem.tied() ? 1 : problem.replicas()); ++r) {
      const double before =
          slowest_s(problem, layout, r, {layout.cuts(r).begin(), layout.cuts(r).end()});
      const double now = slowest_s(problem, layout, r, split(layout, r));
      EXPECT_LE(now, before);
      const double least = least_s(problem, layout, r, {});
      EXPECT_GE(now, least);
      worst = std::max(worst, now / least);
      best += now <= least * (1 + 1e-9) ? 1 : 0;
      ++looked_at;
    }
  }
  RecordProperty("best_of_1000", best * 1000 / looked_at);
  RecordProperty("worst_per_mille_above_the_best", static_cast<int>(1000 * (worst - 1)));
  EXPECT_GT(best, looked_at * 7 / 10);
}

}  // namespace
}  // namespace tapas::solver
