#include "solver/replan/exact_split.h"

#include "cases.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::solver {
namespace {

using testing::Case;

constexpr std::uint64_t kEnough = 1'000'000;

void set_cuts(Layout& layout, std::uint32_t replica, const std::vector<std::uint32_t>& cuts) {
  for (std::uint32_t r = 0; r < layout.problem().replicas(); ++r) {
    if (r == replica || layout.problem().tied()) {
      layout.cut(r, cuts);
    }
  }
}

/// Every cut of the replica, valued whole.
Worth best_of_all(Layout& layout, std::uint32_t replica) {
  Worth best = layout.exact();
  testing::for_each_cut(layout.problem().layers(), layout.problem().stages(),
                        [&](std::vector<std::uint32_t> cuts) {
                          cuts.push_back(layout.problem().layers());
                          if (testing::keeps_pinned(layout, replica, cuts)) {
                            set_cuts(layout, replica, cuts);
                            if (const Worth worth = layout.estimate(); better(worth, best)) {
                              best = worth;
                            }
                            layout.undo();
                          }
                        });
  return best;
}

TEST(ExactSplit, IsTheBestOfAllCuts) {
  int improved = 0;
  int proven = 0;
  int tied = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Case what = testing::random_case(seed);
    // Counts that may move are another search: the split is judged with the ones there are.
    what.job.capabilities.microbatch_counts = seed % 5 == 0;
    testing::Draw draw(seed);
    for (std::size_t n = 0; n < what.job.cluster.nodes.size(); ++n) {
      what.request.pinned.push_back(seed % 4 == 0 && draw.between(0U, 4U) == 0);
    }
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Problem problem(evaluator, what.request.current, what.request.state, what.request.pinned);
    Layout layout(problem, what.request.expected_episode_s, what.job.switch_pause_s);
    ExactSplit split(problem);
    const Worth now = layout.exact();
    ASSERT_TRUE(now.possible());
    layout.mark();
    for (std::uint32_t r = 0; r < (problem.tied() ? 1 : problem.replicas()); ++r) {
      const Worth best = best_of_all(layout, r);
      const ExactSplit::Found found = split(layout, r, now, kEnough, [] { return false; });
      EXPECT_TRUE(found.proven);
      EXPECT_FALSE(better(best, found.worth))
          << "found " << found.worth.useful_s << ", the best is " << best.useful_s;
      EXPECT_TRUE(testing::keeps_pinned(layout, r, found.cuts));
      EXPECT_EQ(layout.exact().useful_s, now.useful_s) << "the layout must come back as it was";
      set_cuts(layout, r, found.cuts);
      EXPECT_DOUBLE_EQ(layout.estimate().useful_s, found.worth.useful_s);
      layout.undo();
      proven += found.proven ? 1 : 0;
      improved += better(found.worth, now) ? 1 : 0;
      tied += problem.tied() && problem.replicas() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(proven, 150);
  EXPECT_GT(improved, 60);
  EXPECT_GT(tied, 15);
}

TEST(ExactSplit, GivesUpWhenToldTo) {
  const Case what = testing::random_case(8);
  PlanEvaluator evaluator(what.job);
  Problem problem(evaluator, what.request.current, what.request.state, {});
  Layout layout(problem, what.request.expected_episode_s, what.job.switch_pause_s);
  ExactSplit split(problem);
  const Worth now = layout.exact();
  layout.mark();
  const std::vector<std::uint32_t> cuts(layout.cuts(0).begin(), layout.cuts(0).end());
  const auto spent = split(layout, 0, now, kEnough, [] { return true; });
  EXPECT_FALSE(spent.proven);
  EXPECT_EQ(spent.cuts, cuts);
  const auto few = split(layout, 0, now, 1, [] { return false; });
  EXPECT_FALSE(few.proven);
  EXPECT_FALSE(better(now, few.worth));
}

}  // namespace
}  // namespace tapas::solver
