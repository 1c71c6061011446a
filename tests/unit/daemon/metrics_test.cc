#include "daemon/control/metrics.h"

#include "tests/unit/daemon/fixtures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

namespace tapas::daemon {
namespace {

/// Lines that are samples; Prometheus counts a series for each.
std::set<std::string> series(const std::string& text) {
  std::set<std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != '#') {
      EXPECT_TRUE(out.insert(line).second) << "twice: " << line;
    }
  }
  return out;
}

JobView some_job() {
  JobView job;
  job.job = "gpt";
  job.session = 0xfeedULL;
  job.plan = tiny_plan(7);
  job.phase = "waiting for 3 agents";
  job.last_step = 4711;
  job.observed_step_s = 1.5;
  job.verdict = "node a is slow";
  job.slow_links = {"node a takes 3.00 times as long to send"};
  job.ranks_reporting = 8;
  job.ranks_expected = 8;
  return job;
}

TEST(Metrics, SayWhatTheStatusSays) {
  StatusView status;
  status.term = Term(3);
  status.auto_replan = true;
  status.agents.resize(3);
  status.agents[0].connected = true;
  status.agents[0].node = "a";
  status.agents[0].records_dropped = 4;
  status.agents[0].slowdown = 1.5;
  status.agents[1].node = "b";
  status.agents[1].drained = true;
  status.agents[1].slowdown = 9;
  status.agents[2].node = "c";
  status.agents[2].connected = true;
  status.jobs = {some_job()};
  status.events = {{"gpt", {{"verdict", 2}}}, {"", {{"operator", 1}}}};
  WireView wire;
  wire.received = {{"step", 12}};
  wire.over_limit = {{"a", 2}, {"b", 3}};
  wire.answers = 5;
  wire.answer_p99_s = 0.25;
  const auto found = series(metrics_text(status, wire, {{"unknown_key", 6}}, 0));
  for (const char* line : {"tapas_term 3",
                           "tapas_auto_replan 1",
                           "tapas_store_unwritten 0",
                           R"(tapas_records_received_total{kind="step"} 12)",
                           "tapas_agent_records_dropped 4",
                           "tapas_over_limit_total 5",
                           R"(tapas_rejected_total{reason="unknown_key"} 6)",
                           R"(tapas_answer_seconds{quantile="0.99"} 0.25)",
                           R"(tapas_agents{state="connected"} 2)",
                           R"(tapas_agents{state="lost"} 1)",
                           R"(tapas_nodes{state="drained"} 1)",
                           "tapas_slow_nodes 1",
                           R"(tapas_node_slowdown_ratio{node="a"} 1.5)",
                           R"(tapas_plan_epoch{job="gpt"} 7)",
                           R"(tapas_last_step{job="gpt"} 4711)",
                           R"(tapas_step_seconds{job="gpt"} 1.5)",
                           R"(tapas_slow_links{job="gpt"} 1)",
                           R"(tapas_job_phase{job="gpt",phase="waiting"} 1)",
                           R"(tapas_events_total{job="gpt",kind="verdict"} 2)",
                           R"(tapas_events_total{job="",kind="operator"} 1)"}) {
    EXPECT_TRUE(found.contains(line)) << line;
  }
}

TEST(Metrics, OfAJobThatReportsNothingHaveNoStepTime) {
  StatusView status;
  status.jobs = {some_job()};
  status.jobs[0].ranks_reporting = 0;
  EXPECT_EQ(metrics_text(status, {}, {}, 0).find("tapas_step_seconds"), std::string::npos);
}

TEST(Metrics, StayFewHoweverManyNodesAndLinksAreSlow) {
  StatusView status;
  for (int node = 0; node < 10'000; ++node) {
    AgentView& agent = status.agents.emplace_back();
    agent.node = "node-" + std::to_string(node);
    agent.connected = true;
    agent.slowdown = 1.0 + node;
  }
  status.jobs = {some_job()};
  status.jobs[0].slow_links.assign(100'000, "a path");
  const std::string text = metrics_text(status, {}, {}, 0);
  EXPECT_LE(series(text).size(), 50U);
  EXPECT_NE(text.find(R"(tapas_node_slowdown_ratio{node="node-9999"} 10000)"), std::string::npos);
}

}  // namespace
}  // namespace tapas::daemon
