#include "solver/check/check_switch.h"

#include "jobs.h"
#include "solver/check/check_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

class CheckSwitch : public ::testing::Test {
 protected:
  Job job = testing::small_job(6, 5, 8, 32);
  Plan from = testing::simple_plan(job, {0, 4}, 2, 8);
  Plan to = from;

  [[nodiscard]] std::string problem() const {
    EXPECT_EQ(plan_violations(job, from), std::vector<std::string>{});
    EXPECT_EQ(plan_violations(job, to), std::vector<std::string>{});
    std::string all;
    for (const std::string& sentence : switch_violations(job, from, to)) {
      all += sentence + "\n";
    }
    return all;
  }
  void expect_refused(const std::string& words) const {
    EXPECT_NE(problem().find(words), std::string::npos) << problem();
  }
};

TEST_F(CheckSwitch, AllowsWhatTheRuntimeCan) {
  EXPECT_EQ(problem(), "");
  job.limits.recompute_ratio = 1;
  job.capabilities.narrower_groups = true;
  to.replica_splits = {{0, 3}, {}};
  to.replica_checkpoint = {{}, std::vector<bool>(8, true)};
  to.microbatches = {12, 20};
  to.placement[1][0].node = NodeId(4);
  to.placement[0][1].devices.resize(4);
  EXPECT_EQ(problem(), "");
}

TEST_F(CheckSwitch, RefusesOtherDevicesWhereStagesCannotMove) {
  job.capabilities.placement = false;
  EXPECT_EQ(problem(), "");
  to.placement[1][0].node = NodeId(4);
  expect_refused(
      "stage 0 of replica 1 goes from devices 0, 1, 2, 3, 4, 5, 6, 7 of node node002 to devices 0, "
      "1, 2, 3, 4, 5, 6, 7 of node node004, but the job's runtime cannot move stages");
  to = from;
  std::swap(to.placement[0][0].devices[0], to.placement[0][0].devices[1]);
  expect_refused("stage 0 of replica 0 goes from");
  to = testing::simple_plan(job, {0, 4}, 1, 8);
  expect_refused("2 replicas of 2 stages become 1 of 2");
}

TEST_F(CheckSwitch, AllowsPartOfItsOwnDevicesWhereGroupsMayNarrow) {
  job.capabilities.placement = false;
  job.capabilities.narrower_groups = true;
  to.placement[1][0].devices.resize(4);
  EXPECT_EQ(problem(), "");
  std::swap(from, to);
  EXPECT_EQ(problem(), "") << "and back";
  to.placement[1][0] = {NodeId(4), {0, 1, 2, 3}};
  expect_refused("stage 0 of replica 1 goes from devices 0, 1, 2, 3 of node node002");
}

TEST_F(CheckSwitch, RefusesOtherFlagsWhereTheRuntimeCannotChangeThem) {
  job.limits.recompute_ratio = 1;
  to.checkpoint[5] = true;
  EXPECT_EQ(problem(), "");
  job.capabilities.recompute = false;
  expect_refused("replica 0 begins to recompute layer 5");
  expect_refused("replica 1 begins to recompute layer 5");
  std::swap(from, to);
  expect_refused("replica 1 ceases to recompute layer 5");
}

TEST_F(CheckSwitch, RefusesOtherCountsWhereTheRuntimeCannotChangeThem) {
  job.global_batch = 33;
  from.microbatches = {17, 16};
  to.microbatches = {16, 17};
  EXPECT_EQ(problem(), "");
  job.capabilities.microbatch_counts = false;
  expect_refused("replica 0 goes from 17 to 16 microbatches");
  expect_refused("replica 1 goes from 16 to 17 microbatches");
}

/// Parameters of a layer on one of `width` devices, from the graph: norms are whole everywhere.
double params_of(const Job& job, std::uint32_t layer, double width) {
  double params = 0;
  for (const OpNode& op : job.graph.nodes) {
    if (op.layer == layer) {
      params += op.param_bytes / job.bytes_per_param / (op.kind == OpKind::kNorm ? 1 : width);
    }
  }
  return params;
}

/// Walks every device and every layer, and asks of each what it held, gives and takes.
double most_bytes_during(const Job& job, const Plan& from, const Plan& to) {
  struct Held {
    std::uint32_t replica = 0;
    Position group;
    std::vector<std::uint32_t> layers;
  };
  const auto holdings = [&](const Plan& plan) {
    std::map<std::pair<NodeId, std::uint16_t>, Held> held;
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      for (std::uint32_t s = 0; s < plan.pp_splits.size(); ++s) {
        const Position& group = plan.placement[r][s % plan.stages()];
        for (const std::uint16_t device : group.devices) {
          Held& of = held[{group.node, device}];
          of.replica = r;
          of.group = group;
          const LayerRange range = stage_layers(plan, r, s, job.graph.layer_count());
          for (std::uint32_t l = range.first; l < range.last; ++l) {
            of.layers.push_back(l);
          }
        }
      }
    }
    return held;
  };
  const auto share = [&](const Plan& plan) {
    return job.optimizer_bytes_per_param / (job.zero_stage > 0 ? plan.replicas() : 1);
  };
  const auto before = holdings(from);
  double most = 0;
  for (const auto& [device, now] : holdings(to)) {
    double bytes = 0;
    const auto old = before.find(device);
    if (old != before.end()) {
      for (const std::uint32_t l : old->second.layers) {
        bytes += params_of(job, l, static_cast<double>(old->second.group.devices.size())) *
                 (job.bytes_per_param + job.gradient_bytes_per_param + share(from));
      }
    }
    for (const std::uint32_t l : now.layers) {
      const bool has = old != before.end() && old->second.group == now.group &&
                       std::count(old->second.layers.begin(), old->second.layers.end(), l) > 0;
      const double params = params_of(job, l, static_cast<double>(now.group.devices.size()));
      if (!has) {
        bytes += params * (job.bytes_per_param + share(to));
      } else if (old->second.replica != now.replica && job.zero_stage > 0) {
        bytes += params * share(to);
      }
    }
    most = std::max(most, bytes);
  }
  return most;
}

TEST(CheckSwitchMemory, IsThatOfEveryDeviceAndLayer) {
  testing::Draw draw(41);
  int beyond_both_plans = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Job job = testing::uneven_job(seed, 10, 8, 4, 24);
    job.capabilities.narrower_groups = true;
    job.zero_stage = draw.between(0U, 1U);
    job.limits.memory_reserve_ratio = 0;
    const auto cuts = [&] {
      return std::vector<std::uint32_t>{0, draw.between(1U, 4U), draw.between(5U, 9U)};
    };
    const auto width = static_cast<std::uint16_t>(1U << draw.between(0U, 2U));
    Plan from = testing::simple_plan(job, cuts(), 2, width);
    from.replica_splits = {{}, cuts()};
    Plan to = from;
    to.replica_splits = {cuts(), draw.between(0U, 1U) == 0 ? from.pp_splits : cuts()};
    for (std::uint32_t swaps = draw.between(0U, 3U); swaps > 0; --swaps) {
      std::swap(to.placement[draw.between(0U, 1U)][draw.between(0U, 2U)],
                to.placement[draw.between(0U, 1U)][draw.between(0U, 2U)]);
    }
    if (width > 1 && draw.between(0U, 2U) == 0) {
      to.placement[draw.between(0U, 1U)][draw.between(0U, 2U)].devices.resize(width / 2U);
    }
    const double most = most_bytes_during(job, from, to);
    job.limits.device_memory_bytes = most * (1 + 1e-6);
    EXPECT_EQ(switch_violations(job, from, to), std::vector<std::string>{}) << "seed " << seed;
    job.limits.device_memory_bytes = most * (1 - 1e-6);
    const auto found = switch_violations(job, from, to);
    ASSERT_FALSE(found.empty()) << "seed " << seed;
    EXPECT_NE(found[0].find("during the switch a device of stage"), std::string::npos) << found[0];
    beyond_both_plans += plan_violations(job, from).empty() && plan_violations(job, to).empty();
  }
  EXPECT_GT(beyond_both_plans, 0) << "a switch can need more than either plan";
}

TEST(CheckSwitchMemory, OfInterleavedPlansTakesAllChunks) {
  Job job = testing::uneven_job(3, 8, 4, 4, 16);
  job.schedule = Schedule::kInterleaved;
  job.limits.memory_reserve_ratio = 0;
  Plan from = testing::simple_plan(job, {0, 4}, 1, 4);
  from.interleave = 2;
  from.pp_splits = {0, 1, 4, 6};
  Plan to = from;
  to.pp_splits = {0, 3, 4, 7};
  const double most = most_bytes_during(job, from, to);
  job.limits.device_memory_bytes = most * (1 + 1e-6);
  EXPECT_EQ(switch_violations(job, from, to), std::vector<std::string>{});
  job.limits.device_memory_bytes = most * (1 - 1e-6);
  EXPECT_EQ(switch_violations(job, from, to).size(), 1U);
}

TEST(CheckSwitchMemory, OfASwapCountsWhatIsGivenAndWhatArrives) {
  Job job = testing::uneven_job(7, 2, 2, 1, 8);
  job.limits.memory_reserve_ratio = 0;
  const Plan from = testing::simple_plan(job, {0, 1}, 1, 1);
  Plan to = from;
  std::swap(to.placement[0][0], to.placement[0][1]);
  // One replica: 2 + 4 + 12 bytes of what goes, 2 + 12 of what comes.
  const double first = params_of(job, 0, 1);
  const double second = params_of(job, 1, 1);
  const double most = std::max(18 * first + 14 * second, 18 * second + 14 * first);
  job.limits.device_memory_bytes = most * 1.0001;
  EXPECT_EQ(switch_violations(job, from, to), std::vector<std::string>{});
  job.limits.device_memory_bytes = most * 0.9999;
  EXPECT_EQ(switch_violations(job, from, to).size(), 1U);
}

}  // namespace
}  // namespace tapas::solver
