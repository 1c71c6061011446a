#include "config/agent_config.h"

#include "temporary_folder.h"

#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tapas {
namespace {

constexpr std::string_view kMinimal = R"({
  // Where the head of the cluster is.
  "schema": "tapas.agent/1",
  "node": "n017",
  "daemon_endpoint": "tcp://head:7070",
  "daemon_public_key": "keys/head.pub",
  "secret_key": "/etc/tapas/keys/n017.key"
})";

TEST(AgentConfig, FillsInDefaults) {
  const auto config = parse_agent_config(kMinimal, "/etc/tapas/agent.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->node, "n017");
  EXPECT_EQ(config->daemon_endpoint, "tcp://head:7070");
  EXPECT_EQ(config->daemon_public_key, "/etc/tapas/keys/head.pub");
  EXPECT_EQ(config->secret_key, "/etc/tapas/keys/n017.key");
  EXPECT_EQ(config->rank_dir, "/dev/shm");
  EXPECT_EQ(config->log_level, log::Level::kInfo);
  EXPECT_GT(config->max_queued_records, 0);
}

TEST(AgentConfig, NamesWhatIsWrong) {
  const std::vector<std::array<std::string_view, 3>> cases = {
      {R"("node": "n017")", R"("node": "n 17")", "agent.json.node"},
      {R"("tcp://head:7070")", R"("ipc:///tmp/x")", "daemon_endpoint"},
      {R"("tcp://head:7070")", R"("tcp://::1:5570")", "tcp://[::1]:5570"},
      {R"("node": "n017",)", R"("node": "n017", "rank_dri": "/tmp",)", "rank_dir"},
      {R"("node": "n017",)", R"("node": "n017", "scan_interval_s": 0,)", "scan_interval_s"},
      {R"("node": "n017",)", R"("node": "n017", "log_level": "loud",)", "log_level"},
      {R"("node": "n017",)", R"("node": "n017", "node": "n018",)", "node"},
      {R"(tapas.agent/1)", R"(tapas.agent/2)", "tapas.agent/1"},
      {R"("node": "n017",)", R"("node": "n017")", "line 5"},
  };
  for (const auto& [from, to, expected] : cases) {
    std::string text(kMinimal);
    text.replace(text.find(from), from.size(), to);
    const auto config = parse_agent_config(text, "agent.json");
    ASSERT_FALSE(config) << to;
    EXPECT_NE(config.error().message.find(expected), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find("agent.json"), std::string::npos);
  }
}

TEST(AgentConfig, DescribesEveryKeyThatItTakes) {
  // The reader names the nearest key it knows, so a slip in each described key must lead back to
  // it.
  std::istringstream lines(describe_agent_options());
  std::size_t keys = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) {
      continue;
    }
    const std::string key = line.substr(2, line.find(' ', 2) - 2);
    std::string text(kMinimal);
    text.insert(text.rfind('}'), ", \"" + key + "x\": 1");
    const auto config = parse_agent_config(text, "agent.json");
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find("\"" + key + "\""), std::string::npos)
        << config.error().message;
    ++keys;
  }
  EXPECT_EQ(keys, 15U);
}

TEST(AgentConfig, TakesTheExample) {
  const auto config = load_agent_config(TAPAS_SOURCE_DIR "/config/examples/agent.json");
  EXPECT_TRUE(config) << config.error().message;
}

TEST(AgentConfig, ReadsFiles) {
  const TemporaryFolder folder;
  EXPECT_TRUE(load_agent_config(folder.write("agent.json", kMinimal)));
  const auto missing = load_agent_config(folder.file("none.json"));
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("none.json"), std::string::npos);
}

}  // namespace
}  // namespace tapas
