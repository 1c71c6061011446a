#include "agent/nccl/settings.h"

#include "base/ids.h"
#include "tests/unit/agent/temporary_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tapas::nccl {
namespace {

class PluginSettings : public testing::Test {
 protected:
  PluginSettings() {
    for (const char* name : {"TAPAS_JOB", "TAPAS_SESSION", "TAPAS_RANKS", "RANK", "SLURM_PROCID",
                             "OMPI_COMM_WORLD_RANK", "TAPAS_NCCL_SETTLE_S", "TAPAS_NCCL_EVERY",
                             "NCCL_PROFILE_EVENT_MASK"}) {
      ::unsetenv(name);
    }
    set("TAPAS_JOB", "gpt3");
    set("TAPAS_SESSION", "12");
    set("TAPAS_RANKS", folder.write("ranks", "7 n0\n8 n0\n16 n1\n"));
    set("RANK", "2");
  }
  ~PluginSettings() override { free_settings(settings); }

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  std::string read() {
    char problem[320];
    free_settings(settings);
    const bool good = read_settings(settings, problem, sizeof(problem));
    EXPECT_EQ(good, settings.peers != nullptr) << "nothing is kept of what cannot work";
    return good ? "good" : problem;
  }

  TemporaryFolder folder;
  Settings settings;
};

TEST_F(PluginSettings, ComeFromTheEnvironmentAndTheListOfRanks) {
  EXPECT_EQ(read(), "good");
  EXPECT_STREQ(settings.job, "gpt3");
  EXPECT_STREQ(settings.node, "n1");
  EXPECT_EQ(settings.session, 12U);
  EXPECT_EQ(settings.rank, 2U);
  EXPECT_EQ(settings.slot, 16U);
  EXPECT_EQ(settings.settle_ns, 60'000'000'000U);
  EXPECT_EQ(settings.every, 8U);
  EXPECT_EQ(settings.fixed_mask, 0U);
  ASSERT_EQ(settings.peer_count, 3U);
  EXPECT_EQ(settings.peers[1].slot, 8U);
  EXPECT_EQ(settings.peers[1].node, name_hash("n0"));

  set("TAPAS_SESSION", "run-a");
  EXPECT_EQ(read(), "good");
  EXPECT_EQ(settings.session, name_hash("run-a"));
  ::unsetenv("RANK");
  set("SLURM_PROCID", "0");
  EXPECT_EQ(read(), "good");
  EXPECT_EQ(settings.slot, 7U);

  std::string many;
  for (int i = 0; i < 5'000; ++i) {
    many += std::to_string(i) + " n" + std::to_string(i / 8) + "\n";
  }
  set("TAPAS_RANKS", folder.write("many", many));
  EXPECT_EQ(read(), "good");
  EXPECT_EQ(settings.peer_count, 5'000U);
  EXPECT_EQ(settings.peers[4'999].node, name_hash("n624"));
}

TEST_F(PluginSettings, AreRefusedWithTheReason) {
  const std::string ranks = folder.file("ranks");
  set("RANK", "3");
  EXPECT_EQ(read(), ranks + " has 3 lines, this is rank 3: it needs one per rank");
  set("RANK", "one");
  EXPECT_EQ(read(), "none of RANK, SLURM_PROCID and OMPI_COMM_WORLD_RANK has this process's rank");
  set("RANK", "0");
  set("TAPAS_NCCL_EVERY", "0");
  EXPECT_EQ(read(), "TAPAS_NCCL_EVERY=0 is not a number from 1 to 8");
  set("TAPAS_NCCL_EVERY", "4x");
  EXPECT_EQ(read(), "TAPAS_NCCL_EVERY=4x is not a number from 1 to 8");
  ::unsetenv("TAPAS_NCCL_EVERY");
  for (const char* line : {"n0\n", "7\n", "7 n0 more\n", "7 -n0\n", "-\n", "\n"}) {
    set("TAPAS_RANKS", folder.write("bad", line));
    EXPECT_EQ(read(),
              folder.file("bad") + ":1: not a device slot and the name of a node, as in \"8 n1\"")
        << line;
  }
  set("TAPAS_RANKS", "/nowhere/ranks");
  EXPECT_EQ(read(), "TAPAS_RANKS=/nowhere/ranks: No such file or directory");
  ::unsetenv("TAPAS_RANKS");
  EXPECT_EQ(read(), "TAPAS_JOB is set, but not TAPAS_RANKS");
  ::unsetenv("TAPAS_SESSION");
  EXPECT_EQ(read(), "TAPAS_JOB is set, but not TAPAS_SESSION");
  set("TAPAS_JOB", "-");
  EXPECT_EQ(read(), "TAPAS_JOB=- is not a job's name");
  ::unsetenv("TAPAS_JOB");
  EXPECT_EQ(read(), "") << "nobody asked for it";
}

}  // namespace
}  // namespace tapas::nccl
