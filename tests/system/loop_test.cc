#include "tests/system/cluster.h"

#include <gtest/gtest.h>

namespace tapas::test {
namespace {

const std::string kJobFile = TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json";
const std::string kPlansPath = "/v1/jobs/gpt-tiny/plans";

/// The whole loop with real programs: tapasd, and the twin as four nodes of two devices.
class Loop : public ::testing::Test {
 protected:
  void start(const json::Value& config, const char* speed = kSpeed) {
    cluster_ = std::make_unique<Cluster>(
        std::vector<std::string>{"node-0", "node-1", "node-2", "node-3"}, config);
    ASSERT_TRUE(cluster_->start()) << cluster_->log();
    twin_ = std::make_unique<Process>(
        std::vector<std::string>{program("tapas-twin"), "--job", kJobFile, "--daemon",
                                 cluster_->endpoint(), "--server-key", cluster_->dir / "server.pub",
                                 "--keys", cluster_->dir / "keys", "--speed", speed, "--quiet"},
        cluster_->dir / "twin.log");
  }

  json::Value job() const {
    const json::Value status = cluster_->status();
    return status.is_object() && !status["jobs"].empty() ? status["jobs"][0]
                                                         : json::Value::object();
  }
  std::int64_t epoch() const { return job().value("epoch", std::int64_t{0}); }
  std::int64_t last_step() const { return job().value("last_step", std::int64_t{0}); }
  json::Value event(const std::string& kind) const {
    for (const json::Value& event : cluster_->events()) {
      if (event["kind"] == kind) {
        return event;
      }
    }
    return {};
  }
  std::string story() const {
    std::string text = twin_->output() + cluster_->log();
    for (const json::Value& event : cluster_->events()) {
      text += event["kind"].get<std::string>() + ": " + event["sentence"].get<std::string>() + "\n";
    }
    return text;
  }

  // A step of this small job takes 0.023 s; agents send what they have every 0.2 s.
  static constexpr const char* kSpeed = "0.1";
  static constexpr std::chrono::seconds kLoopPatience{120};
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Process> twin_;
};

TEST_F(Loop, NamesTheSlowNodeAndSwitchesTheJob) {
  start({{"jobs", {kJobFile}}, {"auto_replan", true}});
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("healthy"); }, kLoopPatience)) << story();
  const std::int64_t before = epoch();
  ASSERT_GE(before, 1);
  twin_->say("slow node-2 1.6");
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("verdict"); }, kLoopPatience)) << story();
  EXPECT_EQ(event("verdict")["node"], "node-2") << story();
  ASSERT_TRUE(eventually([&] { return epoch() > before; }, kLoopPatience)) << story();
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("verify"); }, kLoopPatience)) << story();
  for (const char* kind : {"agent_connected", "plan_active", "healthy", "verdict", "decision",
                           "replan_proposed", "switch_phase", "verify"}) {
    EXPECT_TRUE(cluster_->has_event(kind)) << kind << "\n" << story();
  }
  // The journal, the plans and the decisions tell one story.
  const json::Value plans = cluster_->get(kPlansPath).body["plans"];
  EXPECT_EQ(plans.back()["status"], "active") << plans;
  EXPECT_EQ(plans.back()["epoch"], epoch());
  const json::Value decisions = cluster_->get("/v1/jobs/gpt-tiny/decisions").body["decisions"];
  ASSERT_FALSE(decisions.empty());
  EXPECT_EQ(decisions[0]["evidence"]["node"], "node-2") << decisions;
  EXPECT_LT(decisions[0]["evidence"]["step_after_s"], decisions[0]["evidence"]["step_before_s"]);
}

/// What `tapasctl replay -o json` says of the recording.
json::Value replayed(const std::string& recording, const std::string& out_path, int exit_code) {
  Process ctl({program("tapasctl"), "replay", recording, "-o", "json"}, out_path);
  EXPECT_EQ(ctl.wait_exit(), exit_code) << ctl.output();
  auto value = json::parse(ctl.output());
  EXPECT_TRUE(value) << ctl.output();
  return value ? *std::move(value) : json::Value::object();
}

TEST_F(Loop, CanBeReplayedToTheSameDecisions) {
  start({{"jobs", {kJobFile}}, {"auto_replan", true}, {"recording", "recording.jsonl"}});
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("healthy"); }, kLoopPatience)) << story();
  twin_->say("slow node-2 1.6");
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("verify"); }, kLoopPatience)) << story();
  const json::Value journal = cluster_->events();
  const std::string recording = cluster_->dir / "recording.jsonl";

  // While it is written, and when the daemon is gone in the middle of it.
  EXPECT_EQ(replayed(recording, cluster_->dir / "live.json", 0)["same"], true);
  cluster_->daemon->kill_now();
  const json::Value killed = replayed(recording, cluster_->dir / "killed.json", 0);
  EXPECT_EQ(killed["same"], true) << killed["first_difference"];
  EXPECT_EQ(killed["end"], nullptr);
  // Line by line what the daemon's own journal says.
  std::vector<std::string> told;
  bool ordered = false;
  for (const json::Value& line : killed["lines"]) {
    ordered = ordered || line["kind"] == "order";
    if (line["kind"] != "order") {
      told.push_back(line["sentence"].get<std::string>());
    }
  }
  EXPECT_TRUE(ordered) << killed["lines"];
  ASSERT_GE(told.size(), journal.size());
  for (std::size_t i = 0; i < journal.size(); ++i) {
    EXPECT_EQ(told[i], journal[i]["sentence"].get<std::string>()) << "line " << i;
  }

  // The next life of the daemon has a recording of its own, with what the first one left behind.
  ASSERT_TRUE(cluster_->start()) << cluster_->log();
  ASSERT_TRUE(eventually([&] { return cluster_->connected("node-0"); })) << story();
  EXPECT_EQ(cluster_->daemon->stop(), 0);
  EXPECT_EQ(read_file(recording + ".1").substr(0, 40), read_file(recording).substr(0, 40));
  const json::Value next = replayed(recording, cluster_->dir / "next.json", 0);
  EXPECT_EQ(next["same"], true) << next["first_difference"];
  EXPECT_EQ(next["end"], "tapasd stopped");
  const json::Value first = replayed(recording + ".1", cluster_->dir / "first.json", 0);
  EXPECT_EQ(first["events"], killed["events"]);

  // No secret is in it.
  const std::string text = read_file(recording + ".1");
  EXPECT_EQ(text.find(cluster_->server().secret_key), std::string::npos);
  EXPECT_EQ(text.find(cluster_->server().public_key), std::string::npos);

  // Another answer than the daemon's is told by line.
  std::string other = text;
  const std::size_t at = other.find("node-2 is");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 6, "node-3");
  write_file(cluster_->dir / "other.jsonl", other);
  const json::Value differs =
      replayed(cluster_->dir / "other.jsonl", cluster_->dir / "other.json", 1);
  EXPECT_EQ(differs["same"], false);
  EXPECT_EQ(differs["first_difference"]["line"],
            std::count(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1);
}

TEST_F(Loop, GoesOnUnderTheSamePlanAfterTheDaemonIsKilled) {
  start({{"jobs", {kJobFile}}, {"auto_replan", true}});
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("healthy"); }, kLoopPatience)) << story();
  const std::int64_t before = epoch();
  const json::Value plan = cluster_->get("/v1/jobs/gpt-tiny/plan").body;
  const std::int64_t step = last_step();
  const auto term = cluster_->status()["term"].get<std::int64_t>();

  cluster_->daemon->kill_now();
  ASSERT_TRUE(twin_->running()) << story();
  ASSERT_TRUE(cluster_->start()) << story();
  EXPECT_EQ(cluster_->status()["term"], term + 1);
  EXPECT_EQ(epoch(), before) << "no new plan was made";
  EXPECT_EQ(cluster_->get("/v1/jobs/gpt-tiny/plan").body, plan);
  for (const char* node : {"node-0", "node-1", "node-2", "node-3"}) {
    EXPECT_TRUE(eventually([&] { return cluster_->connected(node); })) << node << story();
  }
  EXPECT_TRUE(eventually([&] { return last_step() > step; })) << story();

  // And it is the same loop: a fault is found and answered, though the new daemon still learns.
  twin_->say("slow node-1 1.6");
  ASSERT_TRUE(eventually([&] { return epoch() > before; }, kLoopPatience)) << story();
  EXPECT_EQ(event("verdict")["node"], "node-1") << story();
}

TEST_F(Loop, JudgesAgainAfterTheDaemonStoodStill) {
  // Forty steps a second: the agents give up their connections, and hundreds of steps are lost.
  start({{"jobs", {kJobFile}}, {"auto_replan", false}}, "1");
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("healthy"); }, kLoopPatience)) << story();
  const std::int64_t before = last_step();
  cluster_->daemon->signal(SIGSTOP);
  std::this_thread::sleep_for(6s);
  cluster_->daemon->signal(SIGCONT);
  ASSERT_TRUE(eventually([&] { return last_step() > before + 200; }, kLoopPatience)) << story();
  twin_->say("slow node-2 1.6");
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("verdict"); }, kLoopPatience))
      << story() << cluster_->status();
  EXPECT_EQ(event("verdict")["node"], "node-2") << story();
  // All ranks are followed again: many steps later none was too far ahead.
  EXPECT_TRUE(eventually(
      [&] {
        const std::int64_t ahead = cluster_->rejected("step_ahead");
        const std::int64_t step = last_step();
        return eventually([&] { return last_step() > step + 50; }) &&
               cluster_->rejected("step_ahead") == ahead;
      },
      kLoopPatience))
      << cluster_->status() << story();
}

TEST_F(Loop, FinishesOrGivesUpASwitchThatTheDaemonDiedIn) {
  start({{"jobs", {kJobFile}}, {"auto_replan", true}});
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("healthy"); }, kLoopPatience)) << story();
  twin_->say("slow node-3 1.6");
  ASSERT_TRUE(eventually([&] { return cluster_->has_event("switch_phase"); }, kLoopPatience))
      << story();
  cluster_->daemon->kill_now();
  ASSERT_TRUE(cluster_->start()) << story();
  const std::int64_t step = last_step();
  // Whatever the moment was, the job ends up on exactly one plan and trains on.
  EXPECT_TRUE(eventually(
      [&] {
        const json::Value plans = cluster_->get(kPlansPath).body["plans"];
        std::size_t active = 0;
        for (const json::Value& plan : plans) {
          active += plan["status"] == "active" ? 1U : 0U;
          if (plan["status"] == "proposed") {
            return false;
          }
        }
        return active == 1 && last_step() > step + 20;
      },
      kLoopPatience))
      << story() << cluster_->get(kPlansPath).body;
  EXPECT_TRUE(twin_->running()) << story();
}

}  // namespace
}  // namespace tapas::test
