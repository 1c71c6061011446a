#include "agent/collect/health_feed.h"

#include "tests/unit/agent/temporary_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tapas::agent {
namespace {

using namespace std::chrono_literals;

/// A program in the place of `tapas-agent health --follow`.
std::string script(const TemporaryFolder& folder, const std::string& body) {
  const std::string path = folder.path() + "/health.sh";
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  ::chmod(path.c_str(), 0755);
  return path;
}

std::string report(const std::string& findings) {
  return R"({"schema": "tapas.health/1", "findings": [)" + findings + "]}";
}

/// The feed's next word, at the time that it is told is now.
std::optional<std::vector<wire::Finding>> next(HealthFeed& feed, TimePoint now) {
  for (int i = 0; i < 3000; ++i) {
    if (auto findings = feed.poll(now)) {
      return findings;
    }
    std::this_thread::sleep_for(10ms);
  }
  return std::nullopt;
}

TEST(HealthFeed, GivesFindingsAsTheyAreReadAndKeepsThemForAWhile) {
  const TemporaryFolder folder;
  const std::string down = R"({"device": "mlx5_0/1", "kind": "port_down", "text": "is down"})";
  HealthFeed feed(
      {1, "/",
       script(folder, "echo '" + report(down) + "'; read x < " + folder.path() + "/more; echo '" +
                          report("") + "'; read x < " + folder.path() + "/more")});
  ASSERT_EQ(::mkfifo((folder.path() + "/more").c_str(), 0600), 0);
  const TimePoint begin = std::chrono::steady_clock::now();
  const auto first = next(feed, begin);
  ASSERT_TRUE(first);
  ASSERT_EQ(first->size(), 1U);
  EXPECT_EQ((*first)[0], (wire::Finding{"mlx5_0/1", "port_down", "is down"}));
  EXPECT_FALSE(feed.poll(begin));

  std::ofstream(folder.path() + "/more") << "\n";
  const auto held = next(feed, begin + 1s);
  ASSERT_TRUE(held);
  EXPECT_EQ(held->size(), 1U) << "no longer read, but a moment ago it was";
}

TEST(HealthFeed, WhatIsNotReadForLongIsOver) {
  const TemporaryFolder folder;
  const std::string down = R"({"device": "a", "kind": "b", "text": "c"})";
  HealthFeed feed(
      {1, "/",
       script(folder, "echo '" + report(down) + "'; echo '" + report("") + "'; exec sleep 60")});
  const TimePoint begin = std::chrono::steady_clock::now();
  while (!feed.poll(begin)) {
    std::this_thread::sleep_for(10ms);
  }
  const auto later = next(feed, begin + HealthFeed::kHold + 1min);
  ASSERT_TRUE(later);
  for (const wire::Finding& finding : *later) {
    EXPECT_NE(finding.device, "a");
  }
}

TEST(HealthFeed, AProcessThatHangsIsAFindingAndStartedAnew) {
  const TemporaryFolder folder;
  HealthFeed feed(
      {1, "/", script(folder, "echo x >> " + folder.path() + "/starts; exec sleep 60")});
  const TimePoint begin = std::chrono::steady_clock::now();
  const auto started = [&](int times, TimePoint now) {
    for (int i = 0; i < 3000; ++i) {
      EXPECT_FALSE(feed.poll(now));
      std::ifstream in(folder.path() + "/starts");
      if (std::count(std::istreambuf_iterator<char>(in), {}, '\n') == times) {
        return true;
      }
      std::this_thread::sleep_for(10ms);
    }
    return false;
  };
  ASSERT_TRUE(started(1, begin));
  EXPECT_FALSE(feed.poll(begin + 20s));
  const auto silent = next(feed, begin + 40s);
  ASSERT_TRUE(silent);
  EXPECT_NE((*silent)[0].text.find("does not answer"), std::string::npos);
  EXPECT_TRUE(started(2, begin + 90s));
}

TEST(HealthFeed, NonsenseAndAnEndlessLineDoNoHarm) {
  const TemporaryFolder folder;
  const TimePoint begin = std::chrono::steady_clock::now();
  HealthFeed nonsense(
      {1, "/", script(folder, "echo 'no JSON'; echo '{\"findings\": 7}'; exec sleep 60")});
  const auto nothing = next(nonsense, begin);
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->empty());
  HealthFeed endless({1, "/", script(folder, "exec cat /dev/zero")});
  const auto ended = next(endless, begin);
  ASSERT_TRUE(ended);
  EXPECT_EQ((*ended)[0].kind, "health_silent");
  HealthFeed missing({1, "/", folder.path() + "/not-there"});
  EXPECT_FALSE(missing.poll(begin));
  EXPECT_FALSE(missing.poll(begin + 2min));
}

}  // namespace
}  // namespace tapas::agent
