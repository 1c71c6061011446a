#include "config/daemon_config.h"

#include "tests/unit/daemon/fixtures.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace tapas {
namespace {

using daemon::TempDir;
using daemon::write_file;

Result<DaemonConfig> load(const TempDir& dir, const std::string& text) {
  write_file(dir / "c.json", text);
  return load_daemon_config(dir / "c.json");
}

TEST(DaemonConfig, ReadsTheInstalledExample) {
  const auto config =
      load_daemon_config(std::string(TAPAS_SOURCE_DIR) + "/config/examples/tapasd.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->listen, "tcp://127.0.0.1:5570");
  EXPECT_EQ(config->operator_group, "tapas-operators");
  EXPECT_FALSE(config->core.auto_replan);
}

TEST(DaemonConfig, ResolvesPathsAgainstItsOwnFolder) {
  const TempDir dir;
  const auto config = load(
      dir,
      R"({"schema": "tapas.tapasd/1", "server_key": "k/server.key", "jobs": ["a.json", "/b.json"],
               "cooldown_s": 5, "replans_per_hour": 3})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server_key, dir / "k/server.key");
  EXPECT_EQ(config->state_dir, "/var/lib/tapas");
  EXPECT_EQ(config->jobs, (std::vector<std::string>{dir / "a.json", "/b.json"}));
  EXPECT_EQ(config->core.cooldown_s, 5);
  EXPECT_EQ(config->core.replans_per_hour, 3U);
  EXPECT_EQ(config->core.heartbeat_s, daemon::CoreConfig().heartbeat_s);
}

TEST(DaemonConfig, NamesTheFileAndTheKeyThatIsWrong) {
  const TempDir dir;
  const auto message = [&](const std::string& body) {
    const auto config = load(dir, R"({"schema": "tapas.tapasd/1", )" + body + "}");
    return config ? std::string("read") : config.error().message;
  };
  const std::string unknown = message(R"("colldown_s": 3)");
  EXPECT_NE(unknown.find("c.json"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("colldown_s"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("\"cooldown_s\""), std::string::npos) << unknown;
  EXPECT_NE(message(R"("min_gain_ratio": 2)").find("min_gain_ratio"), std::string::npos);
  EXPECT_NE(message(R"("jobs": [3])").find("jobs[0]"), std::string::npos);
  EXPECT_NE(message(R"("auto_replan": "yes")").find("auto_replan"), std::string::npos);
  EXPECT_EQ(message(R"("listen": "tcp://[::1]:5570")"), "read");
  const std::string bare = message(R"("listen": "tcp://::1:5570")");
  EXPECT_NE(bare.find("config.listen"), std::string::npos) << bare;
  EXPECT_NE(bare.find("tcp://[::1]:5570"), std::string::npos) << bare;
  EXPECT_FALSE(load(dir, R"({"schema": "tapas.tapasd/2"})"));
  EXPECT_FALSE(load_daemon_config(dir / "missing.json"));
}

TEST(DaemonConfig, IsDocumentedWordForWordInTheDocs) {
  std::ifstream in(std::string(TAPAS_SOURCE_DIR) + "/docs/configuration.md");
  const std::string page{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_NE(page.find("```\n" + describe_daemon_options() + "```"), std::string::npos)
      << "docs/configuration.md should hold:\n"
      << describe_daemon_options();
}

TEST(DaemonConfig, NamesWhatAReloadChanges) {
  DaemonConfig before;
  DaemonConfig after;
  EXPECT_TRUE(core_changes(before, after).empty());
  EXPECT_TRUE(other_changes(before, after).empty());
  after.core.cooldown_s = 60;
  after.core.auto_replan = true;
  after.core.replans_per_hour = 3;
  after.listen = "tcp://127.0.0.1:1";
  after.jobs = {"job.json"};
  EXPECT_EQ(core_changes(before, after),
            (std::vector<std::string>{"auto_replan false -> true", "cooldown_s 30 -> 60",
                                      "replans_per_hour 12 -> 3"}));
  EXPECT_EQ(other_changes(before, after).size(), 2U);
}

}  // namespace
}  // namespace tapas
