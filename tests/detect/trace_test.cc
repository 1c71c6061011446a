#include "tests/detect/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tapas::daemon::testing {
namespace {

TraceSpec spec_of(Fault fault, std::uint64_t seed) {
  TraceSpec spec;
  spec.seed = seed;
  spec.fault = fault;
  spec.depth = 0.5;
  spec.healthy_steps = 200;
  spec.faulty_steps = 200;
  return spec;
}

TEST(Trace, IsTheSameForASeedAndAnotherForTheNext) {
  Trace one(spec_of(Fault::kDevice, 1));
  Trace same(spec_of(Fault::kDevice, 1));
  Trace other(spec_of(Fault::kDevice, 2));
  double differs = 0;
  for (std::uint64_t step = 1; step <= one.steps(); ++step) {
    const WholeStep& whole = one.next();
    EXPECT_EQ(whole.ranks[5].compute_s, same.next().ranks[5].compute_s);
    differs += std::abs(whole.ranks[5].compute_s - other.next().ranks[5].compute_s);
  }
  EXPECT_GT(differs, 0.1);
}

TEST(Trace, AllRanksEndTogetherAndNoneComputesLongerThanTheStep) {
  for (std::uint32_t fault = 0; fault < kFaults; ++fault) {
    Trace trace(spec_of(static_cast<Fault>(fault), fault + 1));
    for (std::uint64_t step = 1; step <= trace.steps(); ++step) {
      const WholeStep& whole = trace.next();
      ASSERT_EQ(whole.step, step);
      for (const RankStep& rank : whole.ranks) {
        ASSERT_EQ(rank.wall_s, whole.ranks[0].wall_s);
        ASSERT_EQ(rank.end_s, whole.ranks[0].end_s);
        ASSERT_LT(rank.compute_s, rank.wall_s);
      }
    }
  }
}

/// How much longer the ranks compute after the fault began, medians over steps.
std::vector<double> growth(Trace& trace) {
  std::vector<std::vector<double>> before(trace.spec().ranks);
  std::vector<std::vector<double>> after(trace.spec().ranks);
  for (std::uint64_t step = 1; step <= trace.steps(); ++step) {
    const WholeStep& whole = trace.next();
    std::vector<double> all;
    for (const RankStep& rank : whole.ranks) {
      all.push_back(rank.compute_s);
    }
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      auto& values = step < trace.fault_step() ? before[rank] : after[rank];
      values.push_back(all[rank] / sorted[sorted.size() / 2]);
    }
  }
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::vector<double> out;
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    out.push_back(median(after[rank]) / median(before[rank]));
  }
  return out;
}

TEST(Trace, TheCulpritsAndNobodyElseGetSlow) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const Fault fault : {Fault::kNone, Fault::kDevice, Fault::kHost, Fault::kTwoDevices}) {
      Trace trace(spec_of(fault, seed));
      const std::vector<double> grown = growth(trace);
      for (std::uint32_t rank = 0; rank < grown.size(); ++rank) {
        const bool slow =
            std::binary_search(trace.culprits().begin(), trace.culprits().end(), RankId(rank));
        EXPECT_NEAR(grown[rank], slow ? 1.5 : 1.0, 0.06) << to_string(fault) << " seed " << seed;
      }
    }
  }
}

TEST(Trace, OnlyTheLateRankWaitsForInputAndTheStepWithIt) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Trace trace(spec_of(Fault::kInput, seed));
    std::vector<double> waits;
    for (std::uint64_t step = 1; step <= trace.steps(); ++step) {
      const WholeStep& whole = trace.next();
      for (const RankStep& rank : whole.ranks) {
        ASSERT_LT(rank.input_s, rank.wall_s);
      }
      if (step >= trace.fault_step()) {
        const double own = whole.ranks[trace.culprits()[0].value()].input_s;
        waits.push_back(own / whole.ranks[0].wall_s);
      }
    }
    std::sort(waits.begin(), waits.end());
    EXPECT_GT(waits[waits.size() / 4], 0.15) << "seed " << seed;
  }
}

TEST(Trace, ComputeOfPackedBatchesFollowsTheTokensThatAreTold) {
  TraceSpec spec = spec_of(Fault::kNone, 3);
  spec.packed = 0.2;
  spec.hints = true;
  spec.noise = 0.001;
  Trace trace(spec);
  double previous = 0;
  double previous_tokens = 0;
  for (int step = 1; step <= 50; ++step) {
    const WholeStep& whole = trace.next();
    const double last = whole.ranks.back().compute_s / whole.ranks.front().compute_s;
    const double tokens = whole.ranks.back().tokens / whole.ranks.front().tokens;
    if (step > 1 && std::abs(std::log(tokens / previous_tokens)) > 0.1) {
      const double power = std::log(last / previous) / std::log(tokens / previous_tokens);
      EXPECT_GT(power, 0.8) << step;
      EXPECT_LT(power, 1.8) << step;
    }
    previous = last;
    previous_tokens = tokens;
  }
}

}  // namespace
}  // namespace tapas::daemon::testing
