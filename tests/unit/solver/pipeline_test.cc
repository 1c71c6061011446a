#include "solver/cost/pipeline.h"

#include "jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tapas::solver {
namespace {

/// Another way to the same number: each stage has its written list of actions, and whatever can
/// run next runs, until everything ran.
double simulate(const Pipeline& p, std::uint32_t m) {
  struct Action {
    bool forward;
    std::uint32_t microbatch;
  };
  const std::size_t stages = p.forward_s.size();
  std::vector<std::vector<Action>> todo(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    std::uint32_t ahead = p.schedule == Schedule::kGpipe
                              ? m
                              : std::min(m, static_cast<std::uint32_t>(stages - 1 - s));
    std::uint32_t forwards = 0;
    std::uint32_t backwards = 0;
    while (backwards < m) {
      if (forwards < m && forwards < backwards + ahead) {
        todo[s].push_back({true, forwards++});
      } else if (forwards < m && forwards == backwards + ahead) {
        todo[s].push_back({true, forwards++});
        todo[s].push_back({false, backwards++});
      } else {
        todo[s].push_back({false, backwards++});
      }
    }
  }
  std::vector<std::vector<double>> f(stages, std::vector<double>(m, -1));
  std::vector<std::vector<double>> b(stages, std::vector<double>(m, -1));
  std::vector<double> free_at(stages, 0);
  std::vector<std::size_t> next(stages, 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t s = 0; s < stages; ++s) {
      while (next[s] < todo[s].size()) {
        const Action a = todo[s][next[s]];
        double input = 0;
        if (a.forward && s > 0) {
          if (f[s - 1][a.microbatch] < 0) break;
          input = f[s - 1][a.microbatch] + p.forward_delay_s[s - 1];
        }
        if (!a.forward) {
          const bool last = s + 1 == stages;
          const double before = last ? f[s][a.microbatch] : b[s + 1][a.microbatch];
          if (before < 0) break;
          input = before + (last ? 0 : p.backward_delay_s[s]);
        }
        free_at[s] = std::max(free_at[s], input) + (a.forward ? p.forward_s[s] : p.backward_s[s]);
        (a.forward ? f : b)[s][a.microbatch] = free_at[s];
        ++next[s];
        progress = true;
      }
    }
  }
  for (std::size_t s = 0; s < stages; ++s) {
    EXPECT_EQ(next[s], todo[s].size()) << "the written schedule deadlocks";
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

Pipeline random_pipeline(testing::Draw& draw, Schedule schedule) {
  Pipeline p;
  p.schedule = schedule;
  const std::uint32_t stages = draw.between(1U, 9U);
  const double longest_delay = draw.between(0.0, 2.0);
  for (std::uint32_t s = 0; s < stages; ++s) {
    p.forward_s.push_back(draw.between(0.1, 1.5));
    p.backward_s.push_back(draw.between(0.1, 3.0));
    if (s + 1 < stages) {
      p.forward_delay_s.push_back(draw.between(0.0, longest_delay));
      p.backward_delay_s.push_back(draw.between(0.0, longest_delay));
    }
  }
  return p;
}

TEST(PipelineTime, EqualsAnEventDrivenSimulation) {
  testing::Draw draw(7);
  for (int k = 0; k < 500; ++k) {
    const Pipeline p = random_pipeline(draw, k % 3 == 0 ? Schedule::kGpipe : Schedule::k1f1b);
    const std::uint32_t m = draw.between(1U, 25U);
    EXPECT_NEAR(pipeline_time_s(p, m), simulate(p, m), 1e-9) << "case " << k;
  }
}

TEST(PipelineTime, OfEqualStagesIsTheTextbookForm) {
  Pipeline p;
  p.forward_s.assign(4, 1);
  p.backward_s.assign(4, 2);
  p.forward_delay_s.assign(3, 0);
  p.backward_delay_s.assign(3, 0);
  EXPECT_DOUBLE_EQ(pipeline_time_s(p, 8), (8 + 4 - 1) * 3.0);
}

TEST(PipelineTime, GrowsWithTheMicrobatches) {
  testing::Draw draw(11);
  for (int k = 0; k < 200; ++k) {
    const Pipeline p = random_pipeline(draw, Schedule::k1f1b);
    const std::uint32_t m = draw.between(1U, 20U);
    EXPECT_GT(pipeline_time_s(p, m + 1), pipeline_time_s(p, m));
  }
}

TEST(InFlight, IsWhatTheScheduleHoldsAtOnce) {
  EXPECT_EQ(in_flight(Schedule::k1f1b, 4, 0, 8), 4U);
  EXPECT_EQ(in_flight(Schedule::k1f1b, 4, 3, 8), 1U);
  EXPECT_EQ(in_flight(Schedule::k1f1b, 4, 0, 2), 2U);
  EXPECT_EQ(in_flight(Schedule::kGpipe, 4, 3, 8), 8U);
}

}  // namespace
}  // namespace tapas::solver
