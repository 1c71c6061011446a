#include "solver/replan/layout.h"

#include "cases.h"
#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/cost/switch_cost.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

using testing::Case;
using testing::Draw;
using testing::random_case;

/// Changes a layout as a search does, without asking whether that is any good.
class Walk {
 public:
  Walk(const Case& what, std::uint64_t seed)
      : what_(what),
        evaluator(what.job),
        problem(evaluator, what.request.current, what.request.state, {}),
        layout(problem, what.request.expected_episode_s, what.job.switch_pause_s),
        draw_(seed) {}

  void change() {
    switch (draw_.between(0U, 3U)) {
      case 0:
        exchange();
        break;
      case 1:
        shift_microbatches();
        break;
      default:
        cut();
    }
  }

  Draw& draw() { return draw_; }

 private:
  [[nodiscard]] std::uint32_t below(std::size_t count) {
    return draw_.between(0U, static_cast<std::uint32_t>(count) - 1);
  }

  void exchange() {
    if (!what_.job.capabilities.placement) {
      return;
    }
    const std::uint32_t stages = problem.stages();
    const std::uint32_t place = below(std::size_t{stages} * problem.replicas());
    const std::uint32_t a = layout.unit(place / stages, place % stages);
    const std::uint32_t b = below(problem.units().size());
    const std::uint32_t other = layout.place_of(b);
    if (a == b || !problem.interchangeable(a, b)) {
      return;
    }
    layout.put(place / stages, place % stages, b);
    if (other != kNone) {
      layout.put(other / stages, other % stages, a);
    }
  }

  void shift_microbatches() {
    const std::uint32_t from = below(problem.replicas());
    const std::uint32_t to = below(problem.replicas());
    if (what_.job.capabilities.microbatch_counts && from != to && layout.microbatches(from) > 1) {
      layout.count(from, layout.microbatches(from) - 1);
      layout.count(to, layout.microbatches(to) + 1);
    }
  }

  void cut() {
    const std::uint32_t r = below(problem.replicas());
    std::vector<std::uint32_t> cuts(layout.cuts(r).begin(), layout.cuts(r).end());
    const std::uint32_t k = draw_.between(1U, problem.stages() - 1);
    cuts[k] = draw_.between(cuts[k - 1] + 1, cuts[k + 1] - 1);
    for (std::uint32_t other = 0; other < problem.replicas(); ++other) {
      if (other == r || problem.tied()) {
        layout.cut(other, cuts);
      }
    }
  }

  const Case& what_;

 public:
  PlanEvaluator evaluator;
  Problem problem;
  Layout layout;

 private:
  Draw draw_;
};

bool spares_whole(const Job& job, const Plan& plan) {
  std::vector<std::uint32_t> used(job.cluster.nodes.size(), 0);
  for (const auto& row : plan.placement) {
    for (const Position& position : row) {
      used[position.node.value()] += plan.tp_width[0];
    }
  }
  for (std::uint32_t n = 0; n < used.size(); ++n) {
    if (job.cluster.nodes[n].spare && used[n] > 0 &&
        used[n] < job.cluster.type_of(NodeId(n)).devices) {
      return false;
    }
  }
  return true;
}

bool same_work(const Plan& a, const Plan& b) {
  for (std::uint32_t r = 0; r < a.replicas(); ++r) {
    if (a.splits_of(r) != b.splits_of(r) || a.checkpoint_of(r) != b.checkpoint_of(r)) {
      return false;
    }
  }
  return a.placement == b.placement && a.microbatches == b.microbatches;
}

std::uint32_t drained_places(const Case& what, const Plan& plan) {
  std::uint32_t places = 0;
  for (const auto& row : plan.placement) {
    for (const Position& position : row) {
      places += what.request.state.is_drained(position.node) ? 1 : 0;
    }
  }
  return places;
}

std::vector<std::string> refusals(const Case& what, const Plan& plan) {
  std::vector<std::string> found = plan_violations(what.job, plan);
  if (found.empty()) {
    found = switch_violations(what.job, what.request.current, plan);
  }
  return found;
}

void expect_true_worth(const Case& what, PlanEvaluator& evaluator, const Layout& layout,
                       const Worth& worth) {
  const Plan plan = layout.plan();
  const double step = evaluator.step_time_s(plan, what.request.state);
  ASSERT_NEAR(worth.step_s, step, 1e-9 * step);
  EXPECT_EQ(worth.drained, drained_places(what, plan));
  if (same_work(plan, what.request.current)) {
    EXPECT_EQ(worth.useful_s, worth.step_s);
    return;
  }
  const double left =
      what.request.expected_episode_s - what.job.switch_pause_s -
      transfer_s(what.job, moves_between(what.job, what.request.current, plan), what.request.state);
  if (left > 0) {
    const double useful = step * what.request.expected_episode_s / left;
    EXPECT_NEAR(worth.useful_s, useful, 1e-9 * useful);
  } else {
    EXPECT_EQ(worth.useful_s, kForever);
  }
}

TEST(Layout, IsWorthWhatThePlanEvaluatorSaysAfterEveryChange) {
  int possible = 0;
  int impossible = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Case what = random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    PlanEvaluator evaluator(what.job);
    Walk walk(what, seed);
    for (int k = 0; k < 25; ++k) {
      for (std::uint32_t n = walk.draw().between(1U, 3U); n > 0; --n) {
        walk.change();
      }
      const Worth worth = walk.layout.exact();
      if (!worth.possible()) {
        ++impossible;
        // The search chooses one width of a unit, and another might do.
        if (!what.job.capabilities.narrower_groups) {
          EXPECT_FALSE(refusals(what, walk.layout.plan()).empty());
        }
        continue;
      }
      ++possible;
      expect_true_worth(what, evaluator, walk.layout, worth);
      if (::testing::Test::HasFailure()) {
        return;
      }
      if (spares_whole(what.job, walk.layout.plan())) {
        EXPECT_EQ(refusals(what, walk.layout.plan()), std::vector<std::string>{});
      }
    }
  }
  EXPECT_GT(possible, 2000);
  EXPECT_GT(impossible, 100);
}

void expect_same(const Worth& a, const Worth& b) {
  EXPECT_EQ(a.drained, b.drained);
  EXPECT_EQ(a.guide_s, b.guide_s);
  EXPECT_EQ(a.useful_s, b.useful_s);
  EXPECT_EQ(a.step_s, b.step_s);
}

struct Content {
  std::vector<std::uint32_t> units;
  std::vector<std::uint32_t> places;
  std::vector<std::uint32_t> cuts;
  std::vector<std::uint32_t> counts;
  bool operator==(const Content&) const = default;
};
Content content_of(const Problem& problem, const Layout& layout) {
  Content content;
  for (std::uint32_t r = 0; r < problem.replicas(); ++r) {
    for (std::uint32_t s = 0; s < problem.stages(); ++s) {
      content.units.push_back(layout.unit(r, s));
    }
    content.cuts.insert(content.cuts.end(), layout.cuts(r).begin(), layout.cuts(r).end());
    content.counts.push_back(layout.microbatches(r));
  }
  for (std::uint32_t u = 0; u < problem.units().size(); ++u) {
    content.places.push_back(layout.place_of(u));
  }
  return content;
}

TEST(Layout, TakesChangesBackToTheLastBit) {
  int taken_back = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Case what = random_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed));
    Walk walk(what, seed);
    struct State {
      Layout::Point point;
      Worth worth;
      Content content;
    };
    if (!walk.layout.exact().possible()) {
      continue;
    }
    walk.layout.mark();
    std::vector<State> states{{{}, walk.layout.exact(), content_of(walk.problem, walk.layout)}};
    for (int k = 0; k < 60; ++k) {
      if (walk.draw().between(0U, 2U) == 0) {  // back to one of the states
        states.resize(walk.draw().between(1U, static_cast<std::uint32_t>(states.size())));
        if (walk.draw().between(0U, 1U) == 0) {
          walk.change();  // not timed
        }
        walk.layout.undo(states.back().point);
        EXPECT_EQ(content_of(walk.problem, walk.layout), states.back().content);
        expect_same(walk.layout.exact(), states.back().worth);
        ++taken_back;
      } else {
        walk.change();
        const Worth worth =
            walk.draw().between(0U, 3U) == 0 ? walk.layout.settle() : walk.layout.exact();
        if (!worth.possible()) {
          walk.layout.undo(states.back().point);
          continue;
        }
        if (walk.draw().between(0U, 5U) == 0) {
          walk.layout.mark();
          states.clear();
        }
        states.push_back({states.empty() ? Layout::Point() : walk.layout.point(), worth,
                          content_of(walk.problem, walk.layout)});
      }
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(taken_back, 1000);
}

/// Every way to give `total` microbatches to `replicas` replicas, at least one to each.
void for_each_count(std::uint32_t replicas, std::uint32_t total,
                    const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  testing::for_each_cut(total, replicas, [&](const std::vector<std::uint32_t>& cuts) {
    std::vector<std::uint32_t> counts;
    for (std::size_t r = 0; r < cuts.size(); ++r) {
      counts.push_back((r + 1 < cuts.size() ? cuts[r + 1] : total) - cuts[r]);
    }
    visit(counts);
  });
}

TEST(Layout, SettlesOnTheBestMicrobatchCounts) {
  int moved = 0;
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Case what = random_case(seed);
    if (what.request.current.replicas() < 2 || what.request.current.replicas() > 3) {
      continue;
    }
    what.job.capabilities.microbatch_counts = true;
    SCOPED_TRACE("case " + std::to_string(seed));
    Walk walk(what, seed);
    walk.change();
    Layout& layout = walk.layout;
    if (!layout.exact().possible()) {
      continue;
    }
    layout.mark();
    Worth best;
    for_each_count(walk.problem.replicas(), what.job.total_microbatches(),
                   [&](const std::vector<std::uint32_t>& counts) {
                     for (std::uint32_t r = 0; r < counts.size(); ++r) {
                       layout.count(r, counts[r]);
                     }
                     if (const Worth worth = layout.exact(); better(worth, best)) {
                       best = worth;
                     }
                     layout.undo();
                   });
    const Content before = content_of(walk.problem, layout);
    const Worth settled = layout.settle();
    EXPECT_FALSE(better(best, settled))
        << "settled on " << settled.useful_s << ", the best is " << best.useful_s;
    std::uint32_t total = 0;
    for (std::uint32_t r = 0; r < walk.problem.replicas(); ++r) {
      total += layout.microbatches(r);
    }
    EXPECT_EQ(total, what.job.total_microbatches());
    moved += content_of(walk.problem, layout) == before ? 0 : 1;
    ++compared;
  }
  EXPECT_GT(compared, 60);
  EXPECT_GT(moved, 20);
}

TEST(Layout, EstimatesExactlyWhereMicrobatchesStay) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Case what = random_case(seed);
    what.job.capabilities.microbatch_counts = false;
    what.request.current.microbatches.assign(what.request.current.replicas(), 5);
    what.job.global_batch = 5 * what.request.current.replicas();
    if (!check_plan(what.job, what.request.current)) {
      continue;
    }
    Walk walk(what, seed);
    for (int k = 0; k < 10; ++k) {
      walk.change();
      const Worth estimate = walk.layout.estimate();
      expect_same(estimate, walk.layout.exact());
    }
  }
}

}  // namespace
}  // namespace tapas::solver
