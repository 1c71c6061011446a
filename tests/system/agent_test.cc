#include "tests/system/cluster.h"

#include <gtest/gtest.h>

namespace tapas::test {
namespace {

std::string tiny_job() { return TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"; }

TEST(Agent, CarriesTheRecordsOfARealRankToTheDaemon) {
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  std::filesystem::create_directory(cluster.dir / "ranks");
  write_file(cluster.dir / "agent.json", json::dump({{"schema", "tapas.agent/1"},
                                                     {"node", "node-0"},
                                                     {"daemon_endpoint", cluster.endpoint()},
                                                     {"daemon_public_key", "server.pub"},
                                                     {"secret_key", "keys/node-0.key"},
                                                     {"rank_dir", "ranks"}}));
  Process agent({program("tapas-agent"), "--config", cluster.dir / "agent.json"},
                cluster.dir / "agent.log");
  ASSERT_TRUE(eventually([&] { return cluster.connected("node-0"); }))
      << agent.output() << cluster.log();
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
      << cluster.status() << rank.output() << agent.output() << cluster.log();

  // The agent goes; the rank goes on; the next agent finds it.
  agent.kill_now();
  EXPECT_TRUE(rank.running());
  Process next({program("tapas-agent"), "--config", cluster.dir / "agent.json"},
               cluster.dir / "agent.log");
  const std::int64_t before = records();
  EXPECT_TRUE(eventually([&] { return records() > before; })) << next.output() << cluster.log();
  EXPECT_TRUE(rank.running()) << rank.output();
}

}  // namespace
}  // namespace tapas::test
