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

/// When the replica with these cuts, or the last of all when they share them, has reduced its
/// gradients.
double row_s(Layout& layout, std::uint32_t replica, const std::vector<std::uint32_t>& cuts) {
  const bool tied = layout.problem().tied();
  const std::uint32_t first = tied ? 0 : replica;
  const std::uint32_t last = tied ? layout.problem().replicas() : replica + 1;
  for (std::uint32_t r = first; r < last; ++r) {
    layout.cut(r, cuts);
  }
  double latest = kForever;
  if (layout.exact().possible()) {
    latest = 0;
    for (std::uint32_t r = first; r < last; ++r) {
      latest = std::max(latest, layout.row_s(r));
    }
  }
  layout.undo();
  return latest;
}

double least_s(Layout& layout, std::uint32_t replica) {
  double least = kForever;
  const Problem& problem = layout.problem();
  testing::for_each_cut(problem.layers(), problem.stages(), [&](std::vector<std::uint32_t> cuts) {
    cuts.push_back(problem.layers());
    if (testing::keeps_pinned(layout, replica, cuts)) {
      least = std::min(least, row_s(layout, replica, cuts));
    }
  });
  return least;
}

/// How far splits are from the best of all.
struct Gaps {
  int best = 0;
  int looked_at = 0;
  double sum = 0;

  void add(double time, double least) {
    ++looked_at;
    best += time <= least * (1 + 1e-9) ? 1 : 0;
    sum += time / least - 1;
  }
  [[nodiscard]] double mean() const { return sum / looked_at; }
};

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

TEST(RowSplit, OfEqualLayersIsNearTheBestOfAll) {
  Draw draw(5);
  Gaps gaps;
  Gaps before;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Case what = equal_layers(seed, seed % 4 >= 2);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, what.request.pinned);
    Layout layout(problem, 1800, 2);
    RowSplit split(problem);
    const std::uint32_t r = draw.between(0U, problem.replicas() - 1);
    const std::vector<std::uint32_t> old(layout.cuts(r).begin(), layout.cuts(r).end());
    const std::vector<std::uint32_t> cuts = split(layout, r);
    EXPECT_TRUE(testing::keeps_pinned(layout, r, cuts));
    const double least = least_s(layout, r);
    gaps.add(row_s(layout, r, cuts), least);
    before.add(row_s(layout, r, old), least);
  }
  RecordProperty("best_of_400", gaps.best);
  RecordProperty("mean_gap_per_mille", static_cast<int>(1000 * gaps.mean()));
  EXPECT_GT(gaps.best, gaps.looked_at * 85 / 100);
  EXPECT_LT(gaps.mean(), 0.01);
  EXPECT_GT(before.mean(), 0.1);
}

TEST(RowSplit, HoldsStagesDown) {
  Draw draw(6);
  int held_down = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Case what = equal_layers(seed, false);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, what.request.pinned);
    const Layout layout(problem, 1800, 2);
    RowSplit split(problem);
    const std::uint32_t s = draw.between(0U, problem.stages() - 1);
    const StageLimit limit{s, draw.between(1U, layout.cuts(0)[s + 1] - layout.cuts(0)[s])};
    const std::vector<std::uint32_t> cuts = split(layout, 0, {&limit, 1});
    EXPECT_LE(cuts[s + 1] - cuts[s], limit.layers);
    held_down += limit.layers < layout.cuts(0)[s + 1] - layout.cuts(0)[s] ? 1 : 0;
  }
  EXPECT_GT(held_down, 100);
}

TEST(RowSplit, OfUnevenLayersIsNearTheBestOfAll) {
  Gaps gaps;
  Gaps before;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Case what = testing::random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, {});
    Layout layout(problem, 1800, 2);
    RowSplit split(problem);
    for (std::uint32_t r = 0; r < (problem.tied() ? 1 : problem.replicas()); ++r) {
      const double now = row_s(layout, r, {layout.cuts(r).begin(), layout.cuts(r).end()});
      const double least = least_s(layout, r);
      if (now < kForever) {
        before.add(now, least);
        gaps.add(row_s(layout, r, split(layout, r)), least);
      }
    }
  }
  RecordProperty("best", gaps.best);
  RecordProperty("mean_gap_per_mille", static_cast<int>(1000 * gaps.mean()));
  EXPECT_GT(gaps.best, gaps.looked_at * 2 / 3);
  EXPECT_LT(gaps.mean(), 0.05);
  EXPECT_GT(before.mean(), 0.1);
}

}  // namespace
}  // namespace tapas::solver
