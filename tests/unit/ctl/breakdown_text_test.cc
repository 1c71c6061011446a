#include "ctl/breakdown_text.h"

#include "solver/model/io/load.h"
#include "solver/search/solve.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::ctl {
namespace {

struct Solved {
  solver::Job job;
  solver::Plan plan;
};

Solved tiny() {
  auto job = solver::load_job(std::string(TAPAS_SOURCE_DIR) + "/config/examples/gpt-tiny-4x2.json");
  EXPECT_TRUE(job) << job.error().message;
  auto outcome = solver::solve(*job);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return {*job, outcome->plan};
}

TEST(BreakdownText, ShowsEveryPartOfEveryStage) {
  const Solved solved = tiny();
  const auto parts = solver::break_down(solved.job, solved.plan);
  const std::string text =
      breakdown_text(solved.job, solved.plan, parts, placement_report(solved.job, solved.plan), 0);
  for (const char* part :
       {"FORWARD", "RECOMPUTE", "TP COMM", "PP COMM", "WAIT", "DP SYNC", "UPDATE", "OPTIMIZER",
        "ACTIVATIONS", "SCRATCH", "RESERVE", "IN NODES", "file order", "share of the step"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(BreakdownJson, AddsUp) {
  const Solved solved = tiny();
  const json::Value value =
      breakdown_to_json(solved.job, solved.plan, solver::break_down(solved.job, solved.plan),
                        placement_report(solved.job, solved.plan));
  const double step = value["step_time_s"];
  EXPECT_NEAR(step, solved.plan.predicted.step_time_s, step * 1e-9);
  ASSERT_EQ(value["replicas"].size(), solved.plan.replicas());
  for (const json::Value& replica : value["replicas"]) {
    ASSERT_EQ(replica["stages"].size(), solved.plan.stages());
    for (const json::Value& stage : replica["stages"]) {
      double sum = 0;
      for (const auto& part : stage["seconds"].items()) {
        sum += part.value().get<double>();
      }
      EXPECT_NEAR(sum, step, step * 1e-9);
    }
  }
  EXPECT_LE(value["placement"]["step_time_s"].get<double>(),
            value["placement"]["file_order"]["step_time_s"].get<double>() * (1 + 1e-9));
}

TEST(PlanShape, NamesWidthsThatDiffer) {
  solver::Plan plan = tiny().plan;
  plan.tp_width.front() = 1;
  plan.tp_width.back() = 2;
  plan.sp_width = 1;
  EXPECT_EQ(shape_of(plan).substr(0, 9), "TP 1 to 2");
}

}  // namespace
}  // namespace tapas::ctl
