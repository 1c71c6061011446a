#include "agent/twin/session.h"

#include "base/json/json.h"
#include "tests/unit/twin/small_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace tapas::twin {
namespace {

class OperatorsCommands : public testing::Test {
 protected:
  OperatorsCommands()
      : model(small_job()),
        job(model, {10.0, 1, 0}),
        fleet(model, job, {}),
        report(model.cluster),
        session(model, job, fleet, report, -1, true) {}

  solver::ClusterState state() const {
    return job.faults().state(job.faults().acting(job.last_step() + 1, job.time_s()));
  }

  const solver::Job model;
  VirtualJob job;
  Fleet fleet;
  Report report;
  Session session;
};

TEST_F(OperatorsCommands, SlowDownLinksByDirectionAndPathsOneWay) {
  EXPECT_EQ(session.command("slow n1 1.6 device 1"), "n1 device 1 x1.6 from the next step on");
  EXPECT_EQ(session.command("input n2 0.4 device 0"),
            "n2 device 0 input +0.4 s from the next step on");
  EXPECT_EQ(session.command("link n1 send 4"), "n1 send x4 from the next step on");
  EXPECT_EQ(session.command("link n2 receive 3"), "n2 receive x3 from the next step on");
  EXPECT_EQ(session.command("link n2 inside 2"), "n2 inside x2 from the next step on");
  EXPECT_EQ(session.command("path n0 n3 8"), "n0 to n3 x8 from the next step on");
  EXPECT_EQ(state().slowdown(RankId{3}), 1.6);
  EXPECT_EQ(state().links(NodeId{1}), (solver::NodeLinks{4, 1, 1}));
  EXPECT_EQ(state().links(NodeId{2}), (solver::NodeLinks{1, 3, 2}));
  EXPECT_EQ(state().path(NodeId{0}, NodeId{3}), 8);
  EXPECT_EQ(state().path(NodeId{3}, NodeId{0}), 1);
  EXPECT_EQ(session.command("heal n3"), "n3: 1 fault(s) end with this step");
  EXPECT_EQ(session.command("heal n1"), "n1: 2 fault(s) end with this step");
  EXPECT_TRUE(state().paths.empty());
}

TEST_F(OperatorsCommands, ThatMakeNoSenseChangeNothingAndSayWhy) {
  EXPECT_NE(session.command("link n1 sideways 4").find("unknown key sideways"), std::string::npos);
  EXPECT_NE(session.command("link n1 send").find("send="), std::string::npos);
  EXPECT_NE(session.command("path n0 n9 4").find("no node n9"), std::string::npos);
  EXPECT_NE(session.command("path n0 n0 4").find("another node"), std::string::npos);
  EXPECT_NE(session.command("cut n0").find("unknown command cut"), std::string::npos);
  EXPECT_TRUE(job.faults().acting(1, 0).empty());
}

TEST_F(OperatorsCommands, KillRanksByTheirNumber) {
  EXPECT_EQ(session.command("kill-rank 3"),
            "rank 3 on n1: killed; the job starts anew after step 0");
  EXPECT_FALSE(job.alive(RankId{3}));
  EXPECT_EQ(session.command("kill-rank 3"), "rank 3: dead already, or the job is done");
  for (const char* line : {"kill-rank 8", "kill-rank -1", "kill-rank", "kill-rank n1"}) {
    EXPECT_NE(session.command(line).find("they are 0 to 7"), std::string::npos) << line;
  }
  EXPECT_TRUE(job.alive(RankId{2}));
}

TEST_F(OperatorsCommands, ShowInTheReportOfEveryStep) {
  (void)session.command("slow n1 2");
  (void)session.command("link n2 send 4");
  (void)session.command("path n0 n3 8");
  FinishedStep step;
  step.faults = job.faults().acting(1, 0);
  const std::string file = testing::TempDir() + "/twin_report.jsonl";
  ASSERT_TRUE(report.open(file));
  report.add(step, 7);
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  const auto value = json::parse(line);
  ASSERT_TRUE(value) << line;
  EXPECT_EQ(value->at("slowed"),
            json::Value::array({{{"node", "n1"}, {"slowdown", 2.0}},
                                {{"node", "n2"}, {"send", 4.0}},
                                {{"from", "n0"}, {"to", "n3"}, {"path", 8.0}}}));
  EXPECT_NE(report.summary().find("n1 x2, n2 send x4, n0 to n3 x8"), std::string::npos);
}

}  // namespace
}  // namespace tapas::twin
