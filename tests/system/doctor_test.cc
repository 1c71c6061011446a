#include "tests/system/cluster.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tapas::test {
namespace {

struct Told {
  int exit_code = -1;
  json::Value checks;  ///< by name
};

/// What `tapas-agent doctor` says of the node's configuration.
Told ask(const Cluster& cluster, const std::string& config) {
  static int runs = 0;
  const std::string output = cluster.dir / ("doctor" + std::to_string(++runs) + ".json");
  Process doctor({program("tapas-agent"), "doctor", "--config", cluster.dir / config, "--timeout",
                  "5", "-o", "json"},
                 output);
  Told told;
  told.exit_code = doctor.wait_exit().value_or(-1);
  const auto value = json::parse(read_file(output));
  EXPECT_TRUE(value) << read_file(output);
  if (value) {
    EXPECT_EQ((*value)["schema"], "tapas.doctor/1");
    for (const json::Value& check : (*value)["checks"]) {
      told.checks[check["name"].get<std::string>()] = check;
    }
  }
  return told;
}

json::Value agent_config(const std::string& endpoint) {
  return {{"schema", "tapas.agent/1"},       {"node", "node-0"},
          {"daemon_endpoint", endpoint},     {"daemon_public_key", "server.pub"},
          {"secret_key", "keys/node-0.key"}, {"rank_dir", "ranks"}};
}

TEST(Doctor, SaysWhetherTheDaemonLetsTheNodeInAndDisplacesNobody) {
  Cluster cluster({"node-0"}, {{"jobs", {TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"}}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  std::filesystem::create_directory(cluster.dir / "ranks");
  const json::Value config = agent_config(cluster.endpoint());
  write_file(cluster.dir / "agent.json", json::dump(config));
  Process agent({program("tapas-agent"), "--config", cluster.dir / "agent.json"},
                cluster.dir / "agent.log");
  ASSERT_TRUE(eventually([&] { return cluster.connected("node-0"); })) << agent.output();

  const Told well = ask(cluster, "agent.json");
  EXPECT_EQ(well.exit_code, 0) << well.checks;
  EXPECT_EQ(well.checks["config"]["state"], "good");
  EXPECT_EQ(well.checks["daemon"]["state"], "good") << well.checks;
  EXPECT_TRUE(cluster.connected("node-0"));
  EXPECT_EQ(agent.output().find("lost the connection"), std::string::npos) << agent.output();

  json::Value stranger = config;
  stranger["secret_key"] = "keys/stranger.key";
  Cluster::write_secret(cluster.dir / "keys/stranger.key", KeyPair::fresh().secret_key);
  write_file(cluster.dir / "stranger.json", json::dump(stranger));
  const Told refused = ask(cluster, "stranger.json");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.checks["daemon"]["seen"].get<std::string>().find("does not let node node-0 in"),
            std::string::npos)
      << refused.checks["daemon"];

  json::Value keyless = config;
  keyless["secret_key"] = "keys/none.key";
  write_file(cluster.dir / "keyless.json", json::dump(keyless));
  const Told none = ask(cluster, "keyless.json");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.checks["daemon"]["seen"].get<std::string>().find("none.key"), std::string::npos)
      << none.checks["daemon"];
}

TEST(Doctor, ADaemonThatIsAwayAndAMissingConfigurationAreBroken) {
  Cluster cluster({"node-0"});
  std::filesystem::create_directory(cluster.dir / "ranks");
  write_file(cluster.dir / "agent.json", json::dump(agent_config(cluster.endpoint())));
  const Told away = ask(cluster, "agent.json");
  EXPECT_EQ(away.exit_code, 1);
  EXPECT_EQ(away.checks["daemon"]["state"], "broken");
  EXPECT_NE(away.checks["daemon"]["seen"].get<std::string>().find("does not answer"),
            std::string::npos);
  EXPECT_EQ(away.checks["rank_dir"]["state"] == "broken", false);

  const Told missing = ask(cluster, "not-there.json");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.checks["config"]["state"], "broken");
  EXPECT_TRUE(missing.checks.contains("clock")) << "the rest is looked at all the same";
}

}  // namespace
}  // namespace tapas::test
