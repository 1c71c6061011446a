#include "tests/system/cluster.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <random>

namespace tapas::test {
namespace {

const std::string kJobFile = TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json";

std::unique_ptr<Process> start_twin(const Cluster& cluster) {
  return std::make_unique<Process>(
      std::vector<std::string>{program("tapas-twin"), "--job", kJobFile, "--daemon",
                               cluster.endpoint(), "--server-key", cluster.dir / "server.pub",
                               "--keys", cluster.dir / "keys", "--speed", "0.1", "--quiet"},
      cluster.dir / "twin.log");
}

json::Value job_of(const Cluster& cluster) {
  const json::Value status = cluster.status();
  return status.is_object() && !status["jobs"].empty() ? status["jobs"][0] : json::Value::object();
}

std::int64_t last_step(const Cluster& cluster) {
  return job_of(cluster).value("last_step", std::int64_t{0});
}

/// One plan is active, none is half way, and the job trains.
bool in_order(const Cluster& cluster, std::int64_t beyond_step) {
  const json::Value plans = cluster.get("/v1/jobs/gpt-tiny/plans").body;
  if (!plans.is_object()) {
    return false;
  }
  int active = 0;
  for (const json::Value& plan : plans["plans"]) {
    active += plan["status"] == "active" ? 1 : 0;
    if (plan["status"] == "proposed") {
      return false;
    }
  }
  return active == 1 && last_step(cluster) > beyond_step &&
         job_of(cluster).value("phase", "").find("switching") == std::string::npos;
}

/// What operators were told to be done, and whether the daemon still says so.
class Acknowledged {
 public:
  explicit Acknowledged(Cluster& cluster) : cluster_(cluster) {}

  /// Pins a node, or unpins it. Without an answer either may be true from now on.
  void turn(const std::string& node) {
    const bool pin = pinned_[node] != Pinned::kYes;
    const HttpAnswer answer = cluster_.post("/v1/nodes/" + node + (pin ? "/pin" : "/unpin"),
                                            pin ? R"({"reason": "test"})" : "{}");
    if (answer.status == 200) {
      pinned_[node] = pin ? Pinned::kYes : Pinned::kNo;
      ++count_;
    } else if (answer.status == 0) {
      pinned_[node] = Pinned::kUnknown;
    }
  }

  void expect_kept() {
    const json::Value status = cluster_.status();
    ASSERT_TRUE(status.is_object()) << cluster_.log();
    for (const json::Value& agent : status["agents"]) {
      const auto known = pinned_.find(agent["node"].get<std::string>());
      if (known == pinned_.end()) {
        continue;
      }
      const bool pinned = agent["pinned"].get<bool>();
      if (known->second == Pinned::kUnknown) {
        known->second = pinned ? Pinned::kYes : Pinned::kNo;
      }
      EXPECT_EQ(pinned, known->second == Pinned::kYes) << known->first << cluster_.log();
    }
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  enum class Pinned { kNo, kYes, kUnknown };
  Cluster& cluster_;
  std::map<std::string, Pinned> pinned_;
  int count_ = 0;
};

/// The epoch that the ranks run, as the twin says; -1 while it runs none, or is in a switch.
std::int64_t epoch_of_ranks(const Process& twin) {
  twin.say("status");
  std::this_thread::sleep_for(300ms);
  const std::string output = twin.output();
  const std::size_t line = output.rfind("step ");
  long long step = 0;
  long long epoch = 0;
  long long pending = 0;
  const bool whole = line != std::string::npos &&
                     std::sscanf(output.c_str() + line, "step %lld epoch %lld pending %lld", &step,
                                 &epoch, &pending) == 3;
  return whole && pending == 0 ? epoch : -1;
}

TEST(Crash, KilledAtRandomMomentsUnderLoadItLosesNothingItAcknowledged) {
  const bool is_long = std::getenv("TAPAS_LONG") != nullptr;
  Cluster cluster({"node-0", "node-1", "node-2", "node-3"},
                  {{"jobs", {kJobFile}}, {"auto_replan", true}, {"cooldown_s", 1}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  std::unique_ptr<Process> twin = start_twin(cluster);
  ASSERT_TRUE(eventually([&] { return cluster.has_event("healthy"); }, 120s)) << cluster.log();
  std::signal(SIGPIPE, SIG_IGN);
  Acknowledged acknowledged(cluster);
  std::mt19937 random(5);
  int kills = 0;
  int agent_kills = 0;
  int rank_kills = 0;
  const auto end = Clock::now() + (is_long ? 120s : 15s);
  while (Clock::now() < end) {
    twin->say("slow node-" + std::to_string(random() % 4) + (random() % 2 == 0 ? " 1.6" : " 1.0"));
    // An agent dies under its ranks, which train on; one that died before comes back.
    const std::string victim = "node-" + std::to_string(random() % 4);
    twin->say("kill-agent " + victim);
    ++agent_kills;
    if (random() % 4 != 0) {
      twin->say("start-agent " + victim);
    }
    twin->say("start-agent node-" + std::to_string(random() % 4));
    // A rank dies, or a node with its agent: the job starts anew, in another session.
    const auto dead = kills == 1 ? 0 : random() % 12;
    if (dead < 4) {
      twin->say("kill-rank " + std::to_string(2 * dead));
      ++rank_kills;
    }
    if (dead < 2) {
      twin->say("kill-rank " + std::to_string(2 * dead + 1));
      twin->say("kill-agent node-" + std::to_string(dead));
    }
    // In the middle of whatever it does then.
    std::thread killer([pid = cluster.daemon->pid(), after_ms = random() % 1500] {
      std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
      kill(pid, SIGKILL);
    });
    while (cluster.daemon->running()) {
      acknowledged.turn("node-" + std::to_string(random() % 2));
      if (random() % 8 == 0) {
        static_cast<void>(cluster.post("/v1/jobs/gpt-tiny/replan", "{}"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
    }
    killer.join();
    ++kills;
    ASSERT_TRUE(twin->running()) << twin->output();
    if (random() % 6 == 0) {
      twin = start_twin(cluster);  // Agents and ranks die, too.
    }
    ASSERT_TRUE(cluster.start()) << cluster.log();
    acknowledged.expect_kept();
  }
  for (int node = 0; node < 4; ++node) {
    twin->say("start-agent node-" + std::to_string(node));
  }
  const std::int64_t step = last_step(cluster);
  EXPECT_TRUE(eventually([&] { return in_order(cluster, step + 20); }, 120s))
      << cluster.get("/v1/jobs/gpt-tiny/plans").body << cluster.status() << cluster.log();
  // One epoch for all: the twin trains on only while all its ranks run one.
  EXPECT_TRUE(eventually(
      [&] { return epoch_of_ranks(*twin) == job_of(cluster).value("epoch", std::int64_t{0}); },
      60s))
      << twin->output() << cluster.status() << cluster.log();
  EXPECT_GT(kills, 3);
  EXPECT_GT(acknowledged.count(), 3);
  EXPECT_GT(rank_kills, 0);
  std::printf("%d kills of the daemon, %d of agents, %d of ranks, %d orders acknowledged\n", kills,
              agent_kills, rank_kills, acknowledged.count());
}

/// The daemon's files may not grow any more.
void set_disk_limit(const Process& process, rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(prlimit(process.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
}

TEST(Crash, AFullDiskStopsAutomaticMovesAndKeepsThePlan) {
  std::signal(SIGXFSZ, SIG_IGN);  // The daemon inherits it, and sees a write that fails.
  Cluster cluster({"node-0", "node-1", "node-2", "node-3"},
                  {{"jobs", {kJobFile}}, {"auto_replan", true}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  const std::unique_ptr<Process> twin = start_twin(cluster);
  ASSERT_TRUE(eventually([&] { return cluster.has_event("healthy"); }, 120s)) << cluster.log();
  const json::Value plan = cluster.get("/v1/jobs/gpt-tiny/plan").body;

  set_disk_limit(*cluster.daemon, 4096);
  const HttpAnswer refused = cluster.post("/v1/nodes/node-0/pin", R"({"reason": "test"})");
  EXPECT_GE(refused.status, 500) << refused.body;
  EXPECT_NE(json::dump(refused.body).find("the store failed"), std::string::npos) << refused.body;
  EXPECT_FALSE(cluster.status()["auto_replan"].get<bool>());
  EXPECT_NE(json::dump(cluster.status()).find("the store failed"), std::string::npos);
  const std::int64_t step = last_step(cluster);
  twin->say("slow node-2 1.6");
  EXPECT_TRUE(eventually([&] { return last_step(cluster) > step + 20; }, 60s))
      << "the job trains on";
  EXPECT_EQ(cluster.get("/v1/jobs/gpt-tiny/plan").body, plan);

  set_disk_limit(*cluster.daemon, RLIM_INFINITY);
  EXPECT_EQ(cluster.post("/v1/nodes/node-0/pin", R"({"reason": "test"})").status, 200);
  EXPECT_TRUE(cluster.has_event("store_failed")) << "what was not written then is now";
  EXPECT_EQ(cluster.post("/v1/nodes/node-0/unpin", "{}").status, 200);
  // Automatic replans stay off until an operator turns them on; what he orders is done.
  EXPECT_FALSE(cluster.status()["auto_replan"].get<bool>());
  EXPECT_EQ(cluster.post("/v1/auto", R"({"on": true, "reason": "room again"})").status, 200);
  EXPECT_EQ(cluster.post("/v1/jobs/gpt-tiny/replan", "{}").status, 200);
  EXPECT_TRUE(eventually([&] { return cluster.get("/v1/jobs/gpt-tiny/plan").body != plan; }, 60s))
      << cluster.log();
}

}  // namespace
}  // namespace tapas::test
