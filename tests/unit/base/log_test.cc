#include "base/log/log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tapas::log {
namespace {

TEST(Log, ReadsItsFourLevelsAndNothingElse) {
  Level level = Level::kError;
  EXPECT_TRUE(parse_level("debug", level));
  EXPECT_EQ(level, Level::kDebug);
  EXPECT_TRUE(parse_level("warning", level));
  EXPECT_EQ(level, Level::kWarning);
  EXPECT_FALSE(parse_level("WARNING", level));
  EXPECT_FALSE(parse_level("", level));
  EXPECT_EQ(level, Level::kWarning);
}

TEST(Log, WritesOneLineWithLevelProgramAndModule) {
  testing::internal::CaptureStderr();
  set_up("tapas-test", Level::kInfo);
  debug("net", "not shown");
  warning("net", "first\nsecond");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("warning tapas-test net: first second\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("not shown"), std::string::npos) << text;
}

TEST(Log, UsesPriorityPrefixesWhenTheJournalReadsStderr) {
  testing::internal::CaptureStderr();
  struct stat status {};
  ASSERT_EQ(fstat(STDERR_FILENO, &status), 0);
  setenv("JOURNAL_STREAM", fmt::format("{}:{}", status.st_dev, status.st_ino).c_str(), 1);
  set_up("tapas-test", Level::kDebug);
  debug("core", "d");
  info("core", "i");
  warning("core", "w");
  error("core", "e\n<0>forged");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "<7>core: d\n<6>core: i\n<4>core: w\n<3>core: e <0>forged\n");

  testing::internal::CaptureStderr();
  setenv("JOURNAL_STREAM", "1:1", 1);  // inherited, but stderr goes elsewhere
  set_up("tapas-test", Level::kDebug);
  info("core", "i");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("info tapas-test core: i\n"),
            std::string::npos);
  unsetenv("JOURNAL_STREAM");
}

TEST(Log, HoldsLimitedWarningsBackPerKey) {
  testing::internal::CaptureStderr();
  set_up("tapas-test", Level::kInfo);
  for (int i = 0; i < 100; ++i) {
    warning_limited("net", "peer-1", "bad frame");
  }
  warning_limited("net", "peer-2", "bad frame");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

}  // namespace
}  // namespace tapas::log
