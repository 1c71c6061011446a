#include "tests/system/cluster.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace tapas::test {
namespace {

/// Stands in for systemd: what the daemon sends to NOTIFY_SOCKET.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path) : path_(path) {
    descriptor_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    bind(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  ~NotifySocket() { close(descriptor_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  /// True when some message so far held the text.
  bool heard(const std::string& text) {
    std::array<char, 4096> message;
    for (ssize_t n = 0; (n = recv(descriptor_, message.data(), message.size(), 0)) > 0;) {
      all_.append(message.data(), static_cast<std::size_t>(n)).append("\n");
    }
    return all_.find(text) != std::string::npos;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
  std::string all_;
};

TEST(Daemon, TellsSystemdWhenItIsReadyAliveAndStopping) {
  Cluster cluster({"n1"});
  NotifySocket systemd(cluster.dir / "notify");
  cluster.daemon =
      cluster.spawn_daemon({{"NOTIFY_SOCKET", systemd.path()}, {"WATCHDOG_USEC", "2000000"}});
  ASSERT_TRUE(eventually([&] { return systemd.heard("READY=1"); })) << cluster.log();
  // Ready means ready: the very first request is answered.
  EXPECT_EQ(cluster.get("/v1/status").status, 200);
  EXPECT_TRUE(eventually([&] { return systemd.heard("STATUS=term 1, 0 agents"); }));
  EXPECT_TRUE(eventually([&] { return systemd.heard("WATCHDOG=1"); }));
  cluster.daemon->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] { return systemd.heard("RELOADING=1"); }));
  EXPECT_EQ(cluster.daemon->stop(), 0) << cluster.log();
  EXPECT_TRUE(systemd.heard("STOPPING=1"));
  EXPECT_FALSE(std::filesystem::exists(cluster.dir / "tapasd.sock"));
}

TEST(Daemon, RefusesASecondOneOnItsState) {
  Cluster cluster({});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  const auto second = cluster.spawn_daemon();
  EXPECT_EQ(second->wait_exit(), 1);
  EXPECT_NE(cluster.log().find(std::to_string(cluster.daemon->pid())), std::string::npos);
  EXPECT_EQ(cluster.get("/v1/status").status, 200) << "the first one goes on";
}

TEST(Daemon, ReplacesTheSocketOfAKilledOneAndTakesAHigherTerm) {
  Cluster cluster({});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  EXPECT_EQ(cluster.status()["term"], 1);
  cluster.daemon->kill_now();
  ASSERT_TRUE(std::filesystem::exists(cluster.dir / "tapasd.sock"));
  ASSERT_TRUE(cluster.start()) << cluster.log();
  EXPECT_EQ(cluster.status()["term"], 2);
}

TEST(Daemon, ExitsWith78AndTheKeysNameOnABadConfiguration) {
  Cluster cluster({}, {{"colldown_s", 3}});
  const auto daemon = cluster.spawn_daemon();
  EXPECT_EQ(daemon->wait_exit(), 78);
  EXPECT_NE(daemon->output().find("colldown_s"), std::string::npos) << daemon->output();

  Cluster missing_job({}, {{"jobs", {"nothing.json"}}});
  const auto other = missing_job.spawn_daemon();
  EXPECT_EQ(other->wait_exit(), 78);
  EXPECT_NE(other->output().find("nothing.json"), std::string::npos) << other->output();
}

TEST(Daemon, LeavesADamagedDatabaseAlone) {
  Cluster cluster({});
  const std::string path = cluster.dir / "state/tapas.db";
  write_file(path, std::string(10000, 'x'));
  const auto daemon = cluster.spawn_daemon();
  EXPECT_EQ(daemon->wait_exit(), 1);
  EXPECT_NE(daemon->output().find(path), std::string::npos) << daemon->output();
  EXPECT_EQ(read_file(path), std::string(10000, 'x'));
}

TEST(Daemon, WelcomesAnAllowedKeyAndAnswersItsHeartbeats) {
  Cluster cluster({"n1"});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  WireClient agent(cluster, cluster.key("n1"));
  agent.send(hello_of("n1"));
  const auto welcome = agent.receive_a<wire::Welcome>();
  ASSERT_TRUE(welcome) << cluster.log();
  EXPECT_EQ(welcome->term, 1U);
  EXPECT_TRUE(eventually([&] { return cluster.connected("n1"); }));
  agent.send(wire::Heartbeat{1, 0, 0});
  EXPECT_TRUE(agent.receive_a<wire::HeartbeatAck>());
  EXPECT_TRUE(cluster.has_event("agent_connected")) << cluster.events();
}

TEST(Daemon, TurnsAnUnknownKeyAwayUntilItIsAllowed) {
  Cluster cluster({"n1"});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  const KeyPair stranger = KeyPair::fresh();
  WireClient client(cluster, stranger);
  client.send(hello_of("n2"));
  ASSERT_TRUE(eventually([&] { return cluster.rejected("unknown_key") >= 1; })) << cluster.log();
  EXPECT_FALSE(client.receive(2000ms)) << "no word to a stranger";
  EXPECT_NE(cluster.log().find(stranger.public_key), std::string::npos) << cluster.log();
  EXPECT_FALSE(cluster.connected("n2"));

  // The operator adds the node: its agent gets in by itself.
  cluster.allow("n2", stranger.public_key);
  cluster.daemon->signal(SIGHUP);
  EXPECT_TRUE(client.receive_a<wire::Welcome>()) << cluster.log();

  // And takes it out again: the connection is closed, and a new one is not let in.
  client.watch();
  std::filesystem::remove(cluster.dir / "agents/n2.pub");
  const std::int64_t turned_away = cluster.rejected("unknown_key");
  cluster.daemon->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] { return client.closed_by_peer(); })) << cluster.log();
  EXPECT_TRUE(eventually([&] { return cluster.rejected("unknown_key") > turned_away; }))
      << cluster.log();
  EXPECT_EQ(cluster.get("/v1/status").status, 200);
}

TEST(Daemon, ClosesTheConnectionOfARevokedKeyThatNeverSaidHello) {
  Cluster cluster({"n1", "n2"});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  WireClient silent(cluster, cluster.key("n1"));
  WireClient other(cluster, cluster.key("n2"));
  other.send(hello_of("n2"));
  ASSERT_TRUE(other.receive_a<wire::Welcome>()) << cluster.log();
  silent.send(wire::Heartbeat{1, 0, 0});
  ASSERT_TRUE(silent.receive_a<wire::Reject>()) << cluster.log();
  silent.watch();
  std::filesystem::remove(cluster.dir / "agents/n1.pub");
  cluster.daemon->signal(SIGHUP);
  ASSERT_TRUE(eventually(
      [&] { return cluster.log().find("agent keys read again: 1 nodes") != std::string::npos; }));
  silent.send(wire::Heartbeat{2, 0, 0});  // Its next word is its last.
  EXPECT_TRUE(eventually([&] { return silent.closed_by_peer(); })) << cluster.log();
  EXPECT_EQ(cluster.rejected("revoked_key"), 1);
  other.send(wire::Heartbeat{1, 0, 0});
  EXPECT_TRUE(other.receive_a<wire::HeartbeatAck>()) << cluster.log();
}

TEST(Daemon, KeepsTheOldKeysWhenANewFileIsBad) {
  Cluster cluster({"n1"});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  write_file(cluster.dir / "agents/n2.pub", "not a key");
  cluster.daemon->signal(SIGHUP);
  ASSERT_TRUE(eventually([&] { return cluster.log().find("n2.pub") != std::string::npos; }));
  WireClient agent(cluster, cluster.key("n1"));
  agent.send(hello_of("n1"));
  EXPECT_TRUE(agent.receive_a<wire::Welcome>()) << cluster.log();
}

TEST(Daemon, TakesOverThresholdsAndNamesThem) {
  Cluster cluster({"n1"}, {{"cooldown_s", 30}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  const std::string path = cluster.dir / "tapasd.json";
  json::Value config = json::parse_file(path).value();
  config["cooldown_s"] = 45;
  config["event_rows"] = 5000;
  write_file(path, json::dump(config));
  cluster.daemon->signal(SIGHUP);
  const auto said = [&](const char* text) {
    return eventually([&] { return cluster.log().find(text) != std::string::npos; });
  };
  EXPECT_TRUE(said("configuration read again: cooldown_s 30 -> 45")) << cluster.log();
  EXPECT_TRUE(said("needs a restart of tapasd: event_rows 1000000 -> 5000")) << cluster.log();
  config["cooldown_s"] = -1;
  write_file(path, json::dump(config));
  cluster.daemon->signal(SIGHUP);
  EXPECT_TRUE(said("the old configuration stays")) << cluster.log();
  EXPECT_EQ(cluster.get("/v1/status").status, 200);
}

TEST(Daemon, RemembersADrainedNode) {
  Cluster cluster({"node-1"}, {{"jobs", {TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"}}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  const HttpAnswer drained = cluster.post("/v1/nodes/node-1/drain", R"({"reason": "fan noise"})");
  EXPECT_EQ(drained.status, 200) << drained.body;
  cluster.daemon->kill_now();
  ASSERT_TRUE(cluster.start()) << cluster.log();
  bool found = false;
  const json::Value status = cluster.status();
  for (const json::Value& agent : status["agents"]) {
    found = found || (agent["node"] == "node-1" && agent["drained"] == true &&
                      agent["drain_reason"] == "fan noise");
  }
  EXPECT_TRUE(found) << status;
}

TEST(Daemon, ServesManyClientsWhileSomeStall) {
  Cluster cluster({});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  std::vector<int> stalled;
  for (int i = 0; i < 40; ++i) {
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (cluster.dir / "tapasd.sock").c_str(),
                 sizeof address.sun_path - 1);
    ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string half = "GET /v1/status HTTP/1.1\r\nHo";
    ASSERT_EQ(write(client, half.data(), half.size()), static_cast<ssize_t>(half.size()));
    stalled.push_back(client);
  }
  EXPECT_EQ(cluster.get("/v1/status").status, 200);
  EXPECT_EQ(cluster.post("/v1/auto", std::string(100'000, ' ')).status, 413);
  EXPECT_EQ(cluster.get("/v1/" + std::string(20'000, 'a')).status, 413);
  for (const int client : stalled) {
    close(client);
  }
  EXPECT_EQ(cluster.get("/v1/status").status, 200);
}

}  // namespace
}  // namespace tapas::test
