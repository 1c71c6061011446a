#include "ctl/agents.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tapas::ctl {
namespace {

json::Value agent(const std::string& node, bool connected, double slowdown) {
  return {{"node", node},
          {"connected", connected},
          {"drained", false},
          {"silent_s", 0.5},
          {"slowdown", slowdown}};
}

TEST(AgentDigest, NamesTheBadOnesWorstFirstAndNeverAllOfThem) {
  json::Value agents = json::Value::array();
  for (int i = 0; i < 128; ++i) {
    agents.push_back(agent(fmt::format("n{:03}", i), i >= 40, 1.0));
  }
  agents[50]["slowdown"] = 1.6;
  agents[60]["drained"] = true;
  agents[60]["drain_reason"] = "fan";
  const std::string text = agent_digest(agents, 3);
  EXPECT_EQ(text,
            "128: 88 connected, 40 lost, 0 not seen yet, 1 slow, 1 drained\n"
            "  n000  lost, silent for 500.0 ms\n"
            "  n001  lost, silent for 500.0 ms\n"
            "  n002  lost, silent for 500.0 ms\n"
            "  and 39 more: `tapasctl node list`\n");
}

TEST(AgentDigest, SaysWhyANodeIsListed) {
  json::Value agents = json::Value::array({agent("n1", true, 1.62), agent("n2", true, 1.01)});
  agents[1]["drained"] = true;
  agents[1]["drain_reason"] = "fan";
  EXPECT_EQ(agent_digest(agents, 8),
            "2: 2 connected, 0 lost, 0 not seen yet, 1 slow, 1 drained\n"
            "  n1  connected, slowdown 1.62\n"
            "  n2  connected, drained (fan)\n");
}

TEST(AgentDigest, ShowsPinsQuarantinesAndWrongClocks) {
  json::Value agents = json::Value::array();
  for (const char* name : {"n1", "n2", "n3", "n4"}) {
    agents.push_back(agent(name, true, 1.0));
  }
  agents[0]["pinned"] = true;
  agents[0]["pin_reason"] = "profiling";
  agents[1]["quarantine_s"] = 600.0;
  agents[2]["clock_off_s"] = -90.0;
  agents[3]["clock_off_s"] = 0.2;
  EXPECT_EQ(agent_digest(agents, 8),
            "4: 4 connected, 0 lost, 0 not seen yet, 0 slow, 0 drained\n"
            "  n1  connected, pinned (profiling)\n"
            "  n2  connected, no work moves back for 10 min 00 s\n"
            "  n3  connected, clock 90.00 s behind\n");
}

TEST(AgentDigest, TellsAnAgentThatNeverCameFromOneThatWentAway) {
  json::Value agents = json::Value::array({agent("n1", false, 1.0), agent("n2", false, 1.0)});
  agents[0]["silent_s"] = 0.0;
  EXPECT_EQ(agent_digest(agents, 8),
            "2: 0 connected, 1 lost, 1 not seen yet, 0 slow, 0 drained\n"
            "  n1  not seen yet\n"
            "  n2  lost, silent for 500.0 ms\n");
}

}  // namespace
}  // namespace tapas::ctl
