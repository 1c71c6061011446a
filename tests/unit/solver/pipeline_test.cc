#include "solver/cost/pipeline.h"

#include "jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <tuple>
#include <vector>

namespace tapas::solver {
namespace {

/// Another way to the same numbers: every device group has its written list of actions, finished
/// work travels as messages in a queue ordered by time, and a group starts its next action when its
/// message is there.
class Reference {
 public:
  Reference(const Pipeline& p, std::uint32_t m) : p_(p), todo_(p.groups()), free_(p.groups(), 0) {
    for (std::uint32_t g = 0; g < p.groups(); ++g) {
      p.chunks > 1 ? write_interleaved(g, m) : write_plain(g, m);
    }
    for (std::uint32_t i = 0; i < m; ++i) {
      arrived_[{0, i, true}] = 0;
    }
    run();
  }

  /// Per stage: the end of its last backward; per group: how it finished.
  std::vector<double> ends;
  bool stuck = false;
  std::size_t most_held(std::uint32_t group) const { return most_held_.at(group); }

 private:
  struct Todo {
    bool forward;
    std::uint32_t stage;
    std::uint32_t microbatch;
  };
  struct Message {
    double time;
    std::uint32_t stage;
    std::uint32_t microbatch;
    bool forward;
    bool operator<(const Message& other) const { return time > other.time; }
  };

  void write_plain(std::uint32_t s, std::uint32_t m) {
    const std::uint32_t ahead =
        p_.schedule == Schedule::kGpipe ? m : std::min(m, p_.stages() - 1 - s);
    std::uint32_t forwards = 0;
    for (; forwards < ahead; ++forwards) {
      todo_[s].push_back({true, s, forwards});
    }
    for (std::uint32_t i = 0; i < m; ++i) {
      if (forwards < m) {
        todo_[s].push_back({true, s, forwards++});
      }
      todo_[s].push_back({false, s, i});
    }
  }

  /// Megatron: microbatches go in rounds of p; within a round all through chunk 0, then all through
  /// chunk 1, ...; backwards the same with the chunks in reverse; (p - i - 1) * 2 + (v - 1) * p
  /// forwards before the first backward, then forward and backward in turn.
  void write_interleaved(std::uint32_t g, std::uint32_t m) {
    const std::uint32_t p = p_.groups();
    std::vector<Todo> forwards;
    std::vector<Todo> backwards;
    for (std::uint32_t round = 0; round < m / p; ++round) {
      for (std::uint32_t c = 0; c < p_.chunks; ++c) {
        for (std::uint32_t i = 0; i < p; ++i) {
          forwards.push_back({true, c * p + g, round * p + i});
          backwards.push_back({false, (p_.chunks - 1 - c) * p + g, round * p + i});
        }
      }
    }
    const std::size_t warm =
        std::min<std::size_t>(forwards.size(), (p - g - 1) * 2 + (p_.chunks - 1) * p);
    todo_[g].assign(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm));
    for (std::size_t k = 0; k < backwards.size(); ++k) {
      if (warm + k < forwards.size()) {
        todo_[g].push_back(forwards[warm + k]);
      }
      todo_[g].push_back(backwards[k]);
    }
  }

  void run() {
    ends.assign(p_.stages(), 0);
    std::vector<std::size_t> next(p_.groups(), 0);
    std::priority_queue<Message> flying;
    const auto start_what_can = [&](std::uint32_t g) {
      while (next[g] < todo_[g].size()) {
        const Todo& a = todo_[g][next[g]];
        const auto input = arrived_.find({a.stage, a.microbatch, a.forward});
        if (input == arrived_.end()) {
          return;
        }
        ++next[g];
        free_[g] =
            std::max(free_[g], input->second) + (a.forward ? p_.forward_s : p_.backward_s)[a.stage];
        held_[g] += a.forward ? 1 : -1;
        most_held_[g] = std::max(most_held_[g], held_[g]);
        if (a.forward) {
          if (a.stage + 1 < p_.stages()) {
            flying.push({free_[g] + p_.forward_delay_s[a.stage], a.stage + 1, a.microbatch, true});
          } else {
            flying.push({free_[g], a.stage, a.microbatch, false});
          }
        } else {
          ends[a.stage] = free_[g];
          if (a.stage > 0) {
            flying.push(
                {free_[g] + p_.backward_delay_s[a.stage - 1], a.stage - 1, a.microbatch, false});
          }
        }
      }
    };
    for (std::uint32_t g = 0; g < p_.groups(); ++g) {
      start_what_can(g);
    }
    while (!flying.empty()) {
      const Message message = flying.top();
      flying.pop();
      arrived_[{message.stage, message.microbatch, message.forward}] = message.time;
      start_what_can(message.stage % p_.groups());
    }
    for (std::uint32_t g = 0; g < p_.groups(); ++g) {
      stuck = stuck || next[g] < todo_[g].size();
    }
  }

  const Pipeline& p_;
  std::vector<std::vector<Todo>> todo_;
  std::vector<double> free_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, double> arrived_;
  std::map<std::uint32_t, std::size_t> held_;
  std::map<std::uint32_t, std::size_t> most_held_;
};

Pipeline random_pipeline(testing::Draw& draw, Schedule schedule) {
  Pipeline p;
  p.schedule = schedule;
  const bool interleaved = schedule == Schedule::kInterleaved;
  p.chunks = interleaved ? draw.between(2U, 4U) : 1;
  const std::uint32_t stages =
      p.chunks * draw.between(interleaved ? 2U : 1U, interleaved ? 5U : 9U);
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

constexpr Schedule kSchedules[] = {Schedule::kGpipe, Schedule::k1f1b, Schedule::kInterleaved};

TEST(PipelineClock, EqualsAnEventDrivenSimulationInEveryStage) {
  testing::Draw draw(7);
  PipelineClock clock;
  for (int k = 0; k < 2000; ++k) {
    const Pipeline p = random_pipeline(draw, kSchedules[k % 3]);
    const std::uint32_t m = draw.between(1U, 12U) * (p.chunks > 1 ? p.groups() : 1);
    const Reference reference(p, m);
    ASSERT_FALSE(reference.stuck) << "the written schedule deadlocks";
    const auto ends = clock.ends_s(p, m);
    for (std::uint32_t s = 0; s < p.stages(); ++s) {
      ASSERT_NEAR(ends[s], reference.ends[s], 1e-9) << "case " << k << " stage " << s;
    }
  }
}

/// What makes a plain pipeline steady early, late or never.
Pipeline pipeline_of_a_kind(testing::Draw& draw, std::uint32_t kind) {
  Pipeline p = random_pipeline(draw, Schedule::k1f1b);
  const std::uint32_t stages = p.stages();
  const std::uint32_t one = draw.between(0U, stages - 1);
  const bool alike = kind != 4;
  for (std::uint32_t s = 0; s < stages && alike; ++s) {
    p.forward_s[s] = p.forward_s[0];
    p.backward_s[s] = p.backward_s[0];
  }
  if (kind == 0) {  // balanced, links that take no time
    std::fill(p.forward_delay_s.begin(), p.forward_delay_s.end(), 0);
    std::fill(p.backward_delay_s.begin(), p.backward_delay_s.end(), 0);
  } else if (kind == 1) {  // one slow stage
    p.forward_s[one] *= 2;
    p.backward_s[one] *= 2;
  } else if (kind == 2) {  // a hair slower than the others: the bottleneck shows late
    p.forward_s[one] *= 1 + 1e-3;
  } else if (kind == 3 && stages > 1) {  // one slow link
    p.forward_delay_s[std::min(one, stages - 2)] = draw.between(1.0, 30.0);
  }
  return p;
}

TEST(PipelineClock, SkipsSteadyRoundsWithoutChangingAnEnd) {
  testing::Draw draw(17);
  PipelineClock clock;
  for (std::uint32_t k = 0; k < 4000; ++k) {
    const Pipeline p = pipeline_of_a_kind(draw, k % 5);
    const std::uint32_t m = draw.between(1U, 20 * p.stages());
    std::vector<double> last(p.stages(), 0);
    for (const Action& action : clock.timeline(p, m)) {
      last[action.stage] = action.end_s;
    }
    const auto ends = clock.ends_s(p, m);
    for (std::uint32_t s = 0; s < p.stages(); ++s) {
      ASSERT_NEAR(ends[s], last[s], 1e-12 * last[s])
          << "case " << k << ", " << m << " microbatches, stage " << s << " of " << p.stages();
    }
  }
}

TEST(PipelineClock, TimelineObeysOrderAndDelays) {
  testing::Draw draw(3);
  PipelineClock clock;
  for (int k = 0; k < 60; ++k) {
    const Pipeline p = random_pipeline(draw, kSchedules[k % 3]);
    const std::uint32_t m = 2 * (p.chunks > 1 ? p.groups() : 3);
    const std::vector<Action> actions = clock.timeline(p, m);
    ASSERT_EQ(actions.size(), std::size_t{2} * p.stages() * m);
    std::map<std::tuple<bool, std::uint32_t, std::uint32_t>, Action> of;
    std::vector<double> free(p.groups(), 0);
    for (const Action& a : actions) {
      EXPECT_GE(a.start_s, free[a.stage % p.groups()]) << "a group does one thing at a time";
      EXPECT_NEAR(a.end_s - a.start_s, (a.forward ? p.forward_s : p.backward_s)[a.stage], 1e-9);
      free[a.stage % p.groups()] = a.end_s;
      of[{a.forward, a.stage, a.microbatch}] = a;
    }
    ASSERT_EQ(of.size(), actions.size());
    for (const Action& a : actions) {
      if (a.forward && a.stage > 0) {
        EXPECT_GE(a.start_s, of[std::tuple(true, a.stage - 1, a.microbatch)].end_s +
                                 p.forward_delay_s[a.stage - 1]);
      }
      if (!a.forward && a.stage + 1 < p.stages()) {
        EXPECT_GE(a.start_s, of[std::tuple(false, a.stage + 1, a.microbatch)].end_s +
                                 p.backward_delay_s[a.stage]);
      }
    }
  }
}

TEST(PipelineTime, OfEqualStagesIsTheTextbookForm) {
  Pipeline p;
  p.forward_s.assign(4, 1);
  p.backward_s.assign(4, 2);
  p.forward_delay_s.assign(3, 0);
  p.backward_delay_s.assign(3, 0);
  EXPECT_DOUBLE_EQ(pipeline_time_s(p, 8), (8 + 4 - 1) * 3.0);
  // Interleaved over 4 groups: the bubble of (p - 1) microbatches shrinks by the chunks.
  for (const std::uint32_t v : {2U, 3U}) {
    Pipeline q;
    q.schedule = Schedule::kInterleaved;
    q.chunks = v;
    q.forward_s.assign(4 * v, 1.0 / v);
    q.backward_s.assign(4 * v, 2.0 / v);
    q.forward_delay_s.assign(4 * v - 1, 0);
    q.backward_delay_s.assign(4 * v - 1, 0);
    EXPECT_NEAR(pipeline_time_s(q, 8), 8 * 3.0 + 3 * 3.0 / v, 1e-12);
  }
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

TEST(HeldChunks, AddUpToWhatTheWrittenScheduleHolds) {
  for (const std::uint32_t groups : {2U, 3U, 4U, 8U}) {
    for (const std::uint32_t chunks : {1U, 2U, 3U, 4U}) {
      for (const std::uint32_t rounds : {1U, 2U, 5U, 9U}) {
        Pipeline p;
        p.schedule = chunks > 1 ? Schedule::kInterleaved : Schedule::k1f1b;
        p.chunks = chunks;
        p.forward_s.assign(groups * chunks, 1);
        p.backward_s.assign(groups * chunks, 2);
        p.forward_delay_s.assign(groups * chunks - 1, 0);
        p.backward_delay_s.assign(groups * chunks - 1, 0);
        const Reference reference(p, groups * rounds);
        for (std::uint32_t g = 0; g < groups; ++g) {
          std::size_t most = 0;
          for (const auto& moment : held_chunks(p.schedule, groups, chunks, g, groups * rounds)) {
            ASSERT_EQ(moment.size(), chunks);
            std::size_t sum = 0;
            for (const std::uint32_t held : moment) {
              sum += held;
            }
            most = std::max(most, sum);
          }
          EXPECT_EQ(most, reference.most_held(g)) << groups << " x " << chunks << " group " << g;
        }
      }
    }
  }
}

TEST(RunsMicrobatches, OnlyWholeRoundsWhenInterleaved) {
  EXPECT_TRUE(runs_microbatches(4, 1, 7));
  EXPECT_TRUE(runs_microbatches(4, 2, 8));
  EXPECT_FALSE(runs_microbatches(4, 2, 7));
  EXPECT_FALSE(runs_microbatches(4, 1, 0));
}

}  // namespace
}  // namespace tapas::solver
