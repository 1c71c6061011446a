#include "ctl/plan_text.h"

#include <gtest/gtest.h>

namespace tapas::ctl {
namespace {

json::Value position(const std::string& node) { return {{"node", node}, {"devices", {0, 1}}}; }

/// Six layers, two stages, two replicas of four nodes in all.
json::Value small_plan() {
  json::Value plan = {{"schema", "tapas.plan/1"},
                      {"job", "small"},
                      {"epoch", 3},
                      {"parent", 2},
                      {"schedule", "1f1b"},
                      {"pp_splits", {0, 3}},
                      {"tp_width", {2, 2, 2, 2, 2, 2}},
                      {"checkpoint", {true, false, false, false, true, false}},
                      {"sp_width", 2},
                      {"microbatches", {8, 8}}};
  plan["placement"] = json::Value::array();
  plan["placement"].push_back({position("n0"), position("n1")});
  plan["placement"].push_back({position("n2"), position("n3")});
  plan["predicted"] = {{"step_time_s", 2.5},         {"lower_bound_s", 2.45},
                       {"gap_ratio", 0.02},          {"peak_fraction", 0.5},
                       {"stage_time_s", {0.1, 0.2}}, {"stage_memory_bytes", {30e9, 60e9}}};
  return plan;
}

PlanView view_of(const json::Value& plan) {
  auto view = plan_view(plan);
  EXPECT_TRUE(view.has_value());
  return view.value_or(PlanView{});
}

TEST(PlanText, ShowsShapeStagesAndShareOfTheCap) {
  const std::string text = plan_text(view_of(small_plan()), {40e9, 80e9});
  EXPECT_NE(text.find("job small, epoch 3 (parent 2)"), std::string::npos) << text;
  EXPECT_NE(text.find("TP 2 x PP 2 x DP 2"), std::string::npos) << text;
  EXPECT_NE(text.find("8 microbatches per replica"), std::string::npos) << text;
  EXPECT_NE(text.find("75.0 %  n0[0-1]"), std::string::npos) << text;
  EXPECT_NE(text.find("75.0 %  n1[0-1]"), std::string::npos) << text;
  EXPECT_NE(text.find("    1     3-5      3           1   2"), std::string::npos) << text;
}

TEST(PlanText, ShowsTheChunksOfADeviceGroupInOneRow) {
  json::Value plan = small_plan();
  plan["schedule"] = "interleaved";
  plan["interleave"] = 2;
  plan["micro_batch_size"] = 4;
  plan["pp_splits"] = {0, 1, 3, 4};
  const std::string text = plan_text(view_of(plan), {80e9, 80e9});
  EXPECT_NE(text.find("TP 2 x PP 2 x DP 2 x 2 chunks"), std::string::npos) << text;
  EXPECT_NE(text.find("8 microbatches per replica of 4 samples"), std::string::npos) << text;
  EXPECT_NE(text.find("    0      0,3      2           1   2"), std::string::npos) << text;
  EXPECT_NE(text.find("    1  1-2,4-5      4           1   2"), std::string::npos) << text;
  EXPECT_EQ(text.find('?'), std::string::npos) << text;
}

TEST(PlanText, NamesReplicasThatAreCutDifferently) {
  json::Value plan = small_plan();
  plan["replica_splits"] = json::Value::array({json::Value::array(), {0, 4}});
  const PlanView view = view_of(plan);
  EXPECT_EQ(view.replicas[0][0].layers(), "0-2");
  EXPECT_EQ(view.replicas[1][0].layers(), "0-3");
  EXPECT_NE(plan_text(view).find("replica 1 has its own cuts: 0, 4"), std::string::npos);
}

TEST(PlanText, NamesReplicasThatRecomputeDifferently) {
  const PlanView before = view_of(small_plan());
  json::Value plan = small_plan();
  plan["replica_checkpoint"] =
      json::Value::array({json::Value::array(), {false, false, true, true, true, false}});
  const PlanView view = view_of(plan);
  EXPECT_NE(plan_text(view).find("replica 1 recomputes its own layers: 2-4"), std::string::npos);
  EXPECT_EQ(plan_text(before).find("recomputes its own"), std::string::npos);
  const auto changes = plan_changes(before, view);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].where, "replica 1 layers 2-3");
  EXPECT_EQ(changes[0].after, "yes");
  EXPECT_EQ(changes[1].where, "replica 1 layer 0");
  EXPECT_EQ(changes[1].after, "no");
}

TEST(PlanText, SurvivesAnswersWithMissingOrWrongFields) {
  json::Value plan = small_plan();
  plan["placement"] = {7, "x"};
  plan["tp_width"] = "wide";
  plan["predicted"] = json::Value();
  plan["microbatches"] = {-1, 1e300};
  plan["replica_checkpoint"] = {7, {"x"}};
  EXPECT_FALSE(plan_text(view_of(plan), {1}).empty());
  EXPECT_FALSE(plan_text(view_of({{"schema", "tapas.plan/1"}})).empty());
  EXPECT_FALSE(plan_view({{"schema", "tapas.plan/2"}}).has_value());
  EXPECT_FALSE(plan_view(json::Value::array()).has_value());
}

TEST(PlanChanges, ListWhatTheRuntimeWouldNotice) {
  const json::Value before = small_plan();
  EXPECT_TRUE(plan_changes(view_of(before), view_of(before)).empty());

  json::Value after = before;
  after["epoch"] = 4;
  after["predicted"]["step_time_s"] = 9;
  EXPECT_TRUE(plan_changes(view_of(before), view_of(after)).empty());

  after["replica_splits"] = json::Value::array({json::Value::array(), {0, 4}});
  after["microbatches"] = {9, 7};
  after["checkpoint"][5] = true;
  after["placement"][0][1]["node"] = "n9";
  std::vector<std::string> lines;
  for (const PlanChange& change : plan_changes(view_of(before), view_of(after))) {
    lines.push_back(change.what + " " + change.where + " " + change.before + " " + change.after);
  }
  const std::vector<std::string> expected{
      "recompute replicas 0-1 layer 5 no yes",
      "microbatches replica 0 8 9",
      "microbatches replica 1 8 7",
      "placement replica 0 stage 1 n1[0-1] n9[0-1]",
      "layers replica 1 stage 0 0-2 0-3",
      "layers replica 1 stage 1 3-5 4-5",
  };
  EXPECT_EQ(lines, expected);
}

TEST(PlanChanges, SayOnceWhatHappensInManyPlaces) {
  const json::Value before = small_plan();
  json::Value after = before;
  after["pp_splits"] = {0, 2};
  after["checkpoint"] = {true, true, true, true, true, false};
  const auto changes = plan_changes(view_of(before), view_of(after));
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].where, "replicas 0-1 layers 1-3");
  EXPECT_EQ(changes[1].where, "replicas 0-1 stage 0");
  EXPECT_EQ(changes[2].where, "replicas 0-1 stage 1");
}

TEST(MovesText, GroupsLayersThatGoTheSameWayAndAddsUp) {
  json::Value moves = json::Value::array();
  for (const int layer : {7, 5, 6, 9}) {
    moves.push_back({{"replica", 4},
                     {"layer", layer},
                     {"from_stage", 1},
                     {"to_stage", 0},
                     {"from", position("n1")},
                     {"to", position("n0")},
                     {"bytes", 1.5e9}});
  }
  const std::string text = moves_text(moves);
  EXPECT_NE(text.find("      4  5-7,9   stage 1 n1[0-1]  stage 0 n0[0-1]  6.00 GB"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("4 layers to move, 6.00 GB"), std::string::npos) << text;
  EXPECT_EQ(moves_text(json::Value::array()), "no layer moves\n");
}

TEST(NumberRanges, JoinsNeighbours) {
  EXPECT_EQ(number_ranges({}), "");
  EXPECT_EQ(number_ranges({4}), "4");
  EXPECT_EQ(number_ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace tapas::ctl
