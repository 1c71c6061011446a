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
  EXPECT_EQ(fault->slowdown, 1.6);
  EXPECT_EQ(fault->from_step, 30U);
  EXPECT_EQ(fault->until_step, 40U);
  EXPECT_EQ(fault->from_s, 12.5);
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
  EXPECT_NE(message("slowdown=2").find("needs node"), std::string::npos);
}

TEST(Faults, ActFromTheirStepToTheirEndOnTheirDevices) {
  const solver::Job job = small_job();
  Faults faults(job.cluster);
  faults.add(*parse_fault("node=n1 slowdown=2 step=3 until_step=5", job.cluster));
  faults.add(*parse_fault("node=n1 slowdown=1.5 device=1 at_s=100", job.cluster));
  EXPECT_TRUE(faults.acting(2, 0).empty());
  EXPECT_EQ(faults.slowdown(faults.acting(3, 0)), (std::vector<double>{1, 1, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(faults.slowdown(faults.acting(4, 100)), (std::vector<double>{1, 1, 2, 3, 1, 1, 1, 1}));
  EXPECT_EQ(faults.acting(5, 100).size(), 1U);
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
}

}  // namespace
}  // namespace tapas::twin
