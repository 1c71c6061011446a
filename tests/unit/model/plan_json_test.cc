#include "solver/model/io/load.h"
#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tapas::solver {
namespace {

Plan odd_plan() {
  Plan plan;
  plan.job = "gpt-tiny";
  plan.epoch = Epoch(std::numeric_limits<std::int64_t>::max());
  plan.parent = Epoch(41);
  plan.schedule = Schedule::kInterleaved;
  plan.interleave = 2;
  plan.micro_batch_size = 4;
  plan.pp_splits = {0, 3};
  plan.tp_width = {2, 2, 2, 1, 1, 1};
  plan.checkpoint = {true, false, true, false, false, true};
  plan.sp_width = 2;
  plan.microbatches = {9, 7};
  plan.placement = {{{NodeId(0), {1, 0}}, {NodeId(1), {1}}},
                    {{NodeId(3), {0, 1}}, {NodeId(2), {0}}}};
  plan.replica_splits = {{}, {0, 4}};
  plan.replica_checkpoint = {{false, true, false, true, true, false}, {}};
  plan.predicted.step_time_s = 1.0 / 3;
  plan.predicted.lower_bound_s = 0.1;
  plan.predicted.gap_ratio = 1e-17;
  plan.predicted.peak_fraction = 0.4;
  plan.predicted.stage_time_s = {0.1, 2.0 / 7};
  plan.predicted.stage_memory_bytes = {1e9, 3};
  plan.predicted.tp_bytes = 1;
  plan.predicted.pp_bytes = 2;
  plan.predicted.dp_bytes = 3;
  return plan;
}

json::Value changed(const Job& job, const char* key, const char* text) {
  json::Value value = plan_to_json(odd_plan(), job);
  value[key] = *json::parse(text);
  return value;
}

TEST(PlanJson, RoundTripsExactly) {
  const Job job = tiny_job();
  const Plan plan = odd_plan();
  const std::string text = json::dump(plan_to_json(plan, job));
  const auto back = plan_from_json(*json::parse(text), job);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(json::dump(plan_to_json(*back, job)), text);
  EXPECT_EQ(back->job, plan.job);
  EXPECT_EQ(back->epoch, plan.epoch);
  EXPECT_EQ(back->parent, plan.parent);
  EXPECT_EQ(back->schedule, plan.schedule);
  EXPECT_EQ(back->interleave, plan.interleave);
  EXPECT_EQ(back->micro_batch_size, plan.micro_batch_size);
  EXPECT_EQ(back->pp_splits, plan.pp_splits);
  EXPECT_EQ(back->tp_width, plan.tp_width);
  EXPECT_EQ(back->checkpoint, plan.checkpoint);
  EXPECT_EQ(back->sp_width, plan.sp_width);
  EXPECT_EQ(back->microbatches, plan.microbatches);
  EXPECT_EQ(back->placement, plan.placement);
  EXPECT_EQ(back->replica_splits, plan.replica_splits);
  EXPECT_EQ(back->replica_checkpoint, plan.replica_checkpoint);
  EXPECT_EQ(back->predicted.step_time_s, plan.predicted.step_time_s);
  EXPECT_EQ(back->predicted.gap_ratio, plan.predicted.gap_ratio);
  EXPECT_EQ(back->predicted.stage_time_s, plan.predicted.stage_time_s);
}

TEST(PlanJson, StartsWithItsSchema) {
  EXPECT_EQ(
      json::dump(plan_to_json(odd_plan(), tiny_job())).rfind("{\"schema\":\"tapas.plan/1\"", 0),
      0U);
}

TEST(PlanJson, NamesTheKeyThatIsWrong) {
  const Job job = tiny_job();
  const auto error = [&](const char* key, const char* text) {
    const auto plan = plan_from_json(changed(job, key, text), job);
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_EQ(error("pp_split", "[0]"),
            "plan: unknown key \"pp_split\"; did you mean \"pp_splits\"?");
  EXPECT_EQ(error("schema", "\"tapas.plan/2\""),
            "plan.schema is \"tapas.plan/2\"; this version reads \"tapas.plan/1\"");
  EXPECT_EQ(error("pp_splits", "[0,-3]"), "plan.pp_splits[1] must be an integer from 0 to 100000");
  EXPECT_EQ(error("tp_width", "[70000]"), "plan.tp_width[0] must be an integer from 0 to 1024");
  EXPECT_EQ(error("checkpoint", "[0,1]"), "plan.checkpoint must hold true or false");
  EXPECT_EQ(error("replica_checkpoints", "[]"),
            "plan: unknown key \"replica_checkpoints\"; did you mean \"replica_checkpoint\"?");
  EXPECT_EQ(error("replica_checkpoint", "[[],[true,1]]"),
            "plan.replica_checkpoint[1] must hold true or false");
  EXPECT_EQ(error("replica_checkpoint", "[[],true]"),
            "plan.replica_checkpoint[1] must be an array of at most 100000 entries");
  EXPECT_NE(error("replica_checkpoint", "true"), "accepted");
  EXPECT_EQ(error("placement", R"([[{"node":"nod-1","devices":[0]}]])"),
            "plan.placement[0][0].node: the job's cluster has no node \"nod-1\"");
  EXPECT_EQ(error("placement", R"([[{"node":"node-1","device":[0]}]])"),
            "plan.placement[0][0]: missing key \"devices\"; is \"device\" meant to be it?");
  EXPECT_EQ(error("placement", R"([7])"),
            "plan.placement[0] must be an array of at most 4096 entries");
  EXPECT_EQ(error("schedule", "\"1F1B\""),
            "plan.schedule is \"1F1B\"; allowed: 1f1b, gpipe, interleaved");
  EXPECT_NE(error("predicted", "{}"), "accepted");
}

TEST(PlanJson, TakesAPlanWithoutPredictions) {
  const Job job = tiny_job();
  json::Value value = plan_to_json(odd_plan(), job);
  value.erase("predicted");
  const auto plan = plan_from_json(value, job);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->predicted.step_time_s, 0);
}

TEST(PlanJson, ListsMovesByNodeName) {
  const Job job = tiny_job();
  const LayerMove move{1, 4, 0, 1, {NodeId(2), {0, 1}}, {NodeId(3), {1}}, 5};
  EXPECT_EQ(json::dump(moves_to_json({move}, job)),
            R"([{"replica":1,"layer":4,"from_stage":0,"to_stage":1,)"
            R"("from":{"node":"node-2","devices":[0,1]},"to":{"node":"node-3","devices":[1]},)"
            R"("bytes":5.0}])");
}

}  // namespace
}  // namespace tapas::solver
