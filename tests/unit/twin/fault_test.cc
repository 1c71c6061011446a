#include "agent/twin/fault.h"

#include "tests/unit/twin/small_job.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::twin {
namespace {

TEST(Fault, IsReadFromItsText) {
  const solver::Job job = small_job();
  const auto fault =
      parse_fault("step=30 node=n2 slowdown=1.6 device=1 until_step=40 at_s=12.5", job.cluster);
  ASSERT_TRUE(fault) << fault.error().message;
  EXPECT_EQ(fault->node, NodeId{2});
  EXPECT_EQ(fault->device, 1U);
  EXPECT_EQ(fault->kind, Fault::Kind::kCompute);
  EXPECT_EQ(fault->amount, 1.6);
  EXPECT_EQ(fault->from_step, 30U);
  EXPECT_EQ(fault->until_step, 40U);
  EXPECT_EQ(fault->from_s, 12.5);
  const auto link = parse_fault("step=3 node=n1 receive=4", job.cluster);
  ASSERT_TRUE(link) << link.error().message;
  EXPECT_EQ(link->kind, Fault::Kind::kReceive);
  EXPECT_EQ(link->node, NodeId{1});
  EXPECT_EQ(link->amount, 4);
  const auto path = parse_fault("from=n3 to=n0 path=8", job.cluster);
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(path->kind, Fault::Kind::kPath);
  EXPECT_EQ(path->node, NodeId{3});
  EXPECT_EQ(path->to, NodeId{0});
}

TEST(Fault, RefusesWhatItDoesNotUnderstandByName) {
  const solver::Job job = small_job();
  const auto message = [&](const char* text) {
    const auto fault = parse_fault(text, job.cluster);
    return fault ? std::string("accepted") : fault.error().message;
  };
  EXPECT_NE(message("node=n9 slowdown=2").find("no node n9"), std::string::npos);
  EXPECT_NE(message("node=n1 slowdown=fast").find("slowdown=fast"), std::string::npos);
  EXPECT_NE(message("node=n1 slowdown=nan").find("slowdown=nan"), std::string::npos);
  EXPECT_NE(message("node=n1 slowdown=0").find("slowdown=0"), std::string::npos);
  EXPECT_NE(message("node=n1 slowdown=2 device=2").find("no device 2"), std::string::npos);
  EXPECT_NE(message("node=n1 slowdown=2 steps=3").find("unknown key steps"), std::string::npos);
  for (const char* text : {"slowdown=2", "node=n1", "node=n1 send=2 receive=2", "node=n1 path=2",
                           "from=n1 to=n2 slowdown=2", "from=n1 path=2", "node=n1 to=n2 send=2"}) {
    EXPECT_NE(message(text).find("needs node"), std::string::npos) << text;
  }
  EXPECT_NE(message("node=n1 send=0").find("send=0"), std::string::npos);
  EXPECT_NE(message("from=n1 to=n8 path=2").find("no node n8"), std::string::npos);
  EXPECT_NE(message("from=n1 to=n1 path=2").find("another node"), std::string::npos);
  EXPECT_NE(message("node=n1 inside=2 device=0").find("only slowdown"), std::string::npos);
  EXPECT_NE(message("node=n1 input_s=-1").find("input_s=-1"), std::string::npos);
  EXPECT_NE(message("node=n1 node=n2 inside=2").find("node is there twice"), std::string::npos);
}

TEST(Faults, ActFromTheirStepToTheirEndOnTheirDevices) {
  const solver::Job job = small_job();
  Faults faults(job.cluster);
  faults.add(*parse_fault("node=n1 slowdown=2 step=3 until_step=5", job.cluster));
  faults.add(*parse_fault("node=n1 slowdown=1.5 device=1 at_s=100", job.cluster));
  EXPECT_TRUE(faults.acting(2, 0).empty());
  const auto slowdown = [&](std::uint64_t step, double job_time_s) {
    return faults.state(faults.acting(step, job_time_s)).device_slowdown;
  };
  EXPECT_EQ(slowdown(3, 0), (std::vector<double>{1, 1, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(slowdown(4, 100), (std::vector<double>{1, 1, 2, 3, 1, 1, 1, 1}));
  EXPECT_EQ(faults.acting(5, 100).size(), 1U);
}

TEST(Faults, OfInputAddUpPerRankAndSlowNoDevice) {
  const solver::Job job = small_job();
  Faults faults(job.cluster);
  faults.add(*parse_fault("node=n1 input_s=0.5 step=2", job.cluster));
  faults.add(*parse_fault("node=n1 input_s=0.25 device=1", job.cluster));
  EXPECT_EQ(faults.input_s(faults.acting(1, 0)), (std::vector<double>{0, 0, 0, 0.25, 0, 0, 0, 0}));
  EXPECT_EQ(faults.input_s(faults.acting(2, 0)),
            (std::vector<double>{0, 0, 0.5, 0.75, 0, 0, 0, 0}));
  EXPECT_EQ(faults.state(faults.acting(2, 0)).device_slowdown, std::vector<double>(8, 1));
  EXPECT_EQ(faults.heal(NodeId{1}, 2, 0), 2U);
  EXPECT_TRUE(faults.input_s(faults.acting(3, 0)).empty());
}

TEST(Faults, OfLinksMultiplyPerDirectionAndPath) {
  const solver::Job job = small_job();
  Faults faults(job.cluster);
  for (const char* text :
       {"node=n1 send=2", "node=n1 send=3", "node=n1 receive=4", "node=n2 inside=5",
        "from=n0 to=n3 path=2", "from=n0 to=n3 path=4", "from=n3 to=n0 path=7"}) {
    faults.add(*parse_fault(text, job.cluster));
  }
  const solver::ClusterState state = faults.state(faults.acting(1, 0));
  EXPECT_EQ(state.links(NodeId{1}), (solver::NodeLinks{6, 4, 1}));
  EXPECT_EQ(state.links(NodeId{2}), (solver::NodeLinks{1, 1, 5}));
  EXPECT_EQ(state.path(NodeId{0}, NodeId{3}), 8);
  EXPECT_EQ(state.path(NodeId{3}, NodeId{0}), 7);
  EXPECT_EQ(state.paths.size(), 2U);
}

TEST(Faults, HealEndsOnlyWhatHasBegunOnThatNode) {
  const solver::Job job = small_job();
  Faults faults(job.cluster);
  faults.add(*parse_fault("node=n1 slowdown=2", job.cluster));
  faults.add(*parse_fault("node=n1 slowdown=3 step=50", job.cluster));
  faults.add(*parse_fault("node=n2 slowdown=4", job.cluster));
  EXPECT_EQ(faults.heal(NodeId{1}, 10, 0), 1U);
  ASSERT_EQ(faults.acting(10, 0).size(), 1U);
  EXPECT_EQ(faults.acting(10, 0)[0].node, NodeId{2});
  EXPECT_EQ(faults.acting(50, 0).size(), 2U);
  faults.add(*parse_fault("from=n2 to=n3 path=2", job.cluster));
  EXPECT_EQ(faults.heal(NodeId{3}, 10, 0), 1U);
}

}  // namespace
}  // namespace tapas::twin
