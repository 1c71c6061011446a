#include "tests/system/cluster.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace tapas::test {
namespace {

std::string tiny_job() { return TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"; }

/// Writes the configuration of node-0's agent and the folder of its ranks.
void prepare_agent(const Cluster& cluster, const std::string& endpoint) {
  std::filesystem::create_directory(cluster.dir / "ranks");
  write_file(cluster.dir / "agent.json", json::dump({{"schema", "tapas.agent/1"},
                                                     {"node", "node-0"},
                                                     {"daemon_endpoint", endpoint},
                                                     {"daemon_public_key", "server.pub"},
                                                     {"secret_key", "keys/node-0.key"},
                                                     {"rank_dir", "ranks"}}));
}

std::unique_ptr<Process> start_agent(const Cluster& cluster) {
  return std::make_unique<Process>(
      std::vector<std::string>{program("tapas-agent"), "--config", cluster.dir / "agent.json"},
      cluster.dir / "agent.log");
}

TEST(Agent, CarriesTheRecordsOfARealRankWhateverKillsIt) {
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}, {"auto_replan", true}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  prepare_agent(cluster, cluster.endpoint());
  auto agent = start_agent(cluster);
  ASSERT_TRUE(eventually([&] { return cluster.connected("node-0"); }))
      << agent->output() << cluster.log();
  Process rank({program("tapas-example-rank"), "--job", "gpt-tiny", "--node", "node-0", "--rank",
                "0", "--dir", cluster.dir / "ranks", "--steps", "100000"},
               cluster.dir / "rank.log");
  const auto records = [&] {
    const json::Value status = cluster.status();
    for (const json::Value& node : status["agents"]) {
      if (node["node"] == "node-0") {
        return node["records"].get<std::int64_t>();
      }
    }
    return std::int64_t{0};
  };
  EXPECT_TRUE(eventually([&] { return records() >= 5; }))
      << cluster.status() << rank.output() << agent->output() << cluster.log();
  const auto epoch = [&] { return cluster.status()["jobs"][0]["epoch"].get<std::int64_t>(); };
  const std::int64_t plan = epoch();

  // The agent goes; the rank goes on under its plan; the next agent finds it.
  for (const int how : {SIGKILL, SIGSEGV}) {
    agent->signal(how);
    ASSERT_TRUE(eventually([&] { return !agent->running(); }));
    EXPECT_TRUE(rank.running());
    agent = start_agent(cluster);
    const std::int64_t before = records();
    EXPECT_TRUE(eventually([&] { return records() > before; })) << agent->output() << cluster.log();
    EXPECT_TRUE(rank.running()) << rank.output();
  }
  EXPECT_EQ(epoch(), plan);
  EXPECT_FALSE(cluster.has_event("verdict"));
  EXPECT_FALSE(cluster.has_event("replan_proposed"));
}

TEST(Agent, FindsTheDaemonAtAnIPv6Address) {
  Cluster probe({"node-0"});
  const std::string endpoint =
      "tcp://[::1]" + probe.endpoint().substr(sizeof "tcp://127.0.0.1" - 1);
  const int ipv6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool usable = bind(ipv6, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  close(ipv6);
  if (!usable) {
    GTEST_SKIP() << "skipped: this machine has no IPv6 loopback";
  }
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}, {"listen", endpoint}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  prepare_agent(cluster, endpoint);
  const auto agent = start_agent(cluster);
  EXPECT_TRUE(eventually([&] { return cluster.connected("node-0"); }))
      << agent->output() << cluster.log();
}

}  // namespace
}  // namespace tapas::test
