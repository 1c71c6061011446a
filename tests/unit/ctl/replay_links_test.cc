#include "ctl/replay_links.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tapas::ctl {
namespace {

using Part = daemon::LinkFault::Part;

void ignore(double /*done*/) {}

/// Transfers between all pairs of four nodes at 25 GB/s, by step (from 1).
std::string transfers(int steps, const std::function<double(int, int, int)>& slowdown) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(1, 0.02);
  std::string text = "dst,step,src,note,transfer_s,bytes\n";
  for (int step = 1; step <= steps; ++step) {
    for (int from = 0; from < 4; ++from) {
      for (int to = 0; to < 4; ++to) {
        if (from != to) {
          text += fmt::format("n{},{},n{},x,{:.9f},50000000\n", to, step, from,
                              0.002 * noise(random) * slowdown(step, from, to));
        }
      }
    }
  }
  return text;
}

std::vector<LinkEpisode> replayed(const std::string& text) {
  EXPECT_TRUE(has_links(text));
  const auto trace = read_link_trace("links.csv", text, ignore);
  EXPECT_TRUE(trace) << (trace ? "" : trace.error().message);
  return trace ? replay_links(*trace, ignore) : std::vector<LinkEpisode>{};
}

std::string error_of(const std::string& text) {
  const auto trace = read_link_trace("links.csv", text, ignore);
  return trace ? "" : trace.error().message;
}

TEST(ReplayLinks, ANicThatSendsSlowlyIsNamedUntilItIsWell) {
  const auto episodes = replayed(transfers(120, [](int step, int from, int) {
    return from == 2 && step > 40 && step <= 80 ? 2.0 : 1.0;
  }));
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].fault.part, Part::kSend);
  EXPECT_NE(episodes[0].sentence.find("node n2"), std::string::npos) << episodes[0].sentence;
  EXPECT_EQ(episodes[0].fault.since.step, 41U);
  EXPECT_LE(episodes[0].verdict_step, 48U);
  EXPECT_NEAR(episodes[0].fault.slowdown, 2, 0.1);
  EXPECT_NEAR(1e-9 / episodes[0].fault.before_s, 25, 1);
  ASSERT_TRUE(episodes[0].end_step);
  EXPECT_LE(*episodes[0].end_step, 90U);
}

TEST(ReplayLinks, ASlowWayIsNoNicAndCongestionThatPassesIsNothing) {
  const auto way = replayed(transfers(80, [](int step, int from, int to) {
    return from == 0 && to == 3 && step > 40 ? 3.0 : 1.0;
  }));
  ASSERT_EQ(way.size(), 1U);
  EXPECT_EQ(way[0].fault.part, Part::kPath);
  EXPECT_FALSE(way[0].end_step);
  EXPECT_TRUE(replayed(transfers(300, [](int step, int from, int) {
                return from == 1 && step % 50 < 2 ? 3.0 : 1.0;
              })).empty());
}

TEST(ReplayLinks, TextAndJsonTellTheSame) {
  const auto trace = read_link_trace(
      "links.csv",
      transfers(60, [](int step, int, int to) { return to == 1 && step > 30 ? 2.0 : 1.0; }),
      ignore);
  ASSERT_TRUE(trace);
  const auto episodes = replay_links(*trace, ignore);
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_NE(links_text(*trace, episodes).find("60 steps, 4 nodes: 1 episode"), std::string::npos)
      << links_text(*trace, episodes);
  const json::Value json = links_json(*trace, episodes);
  EXPECT_EQ(json["nodes"], 4);
  EXPECT_EQ(json["episodes"][0]["part"], "receive");
  EXPECT_EQ(json["episodes"][0]["to"], "n1");
  EXPECT_EQ(json["episodes"][0]["since_step"], 31);
  EXPECT_TRUE(json["episodes"][0]["end_step"].is_null());
}

TEST(ReplayLinks, ErrorsNameTheLineAndWhatIsExpected) {
  EXPECT_FALSE(has_links("step,rank,compute_s\n"));
  EXPECT_NE(error_of("step,src,dst,bytes\n").find("links.csv:1: the column \"transfer_s\""),
            std::string::npos);
  const std::string head = "step,src,dst,bytes,transfer_s\n";
  EXPECT_NE(error_of(head).find("no rows"), std::string::npos);
  EXPECT_NE(error_of(head + "1,a,b,5\n").find("links.csv:2: 4 fields"), std::string::npos);
  EXPECT_NE(error_of(head + "1,a,b,0,1\n").find("bytes"), std::string::npos);
  EXPECT_NE(error_of(head + "1,a,a,5,1\n").find("another node"), std::string::npos);
  EXPECT_NE(error_of(head + "2,a,b,5,1\n1,a,b,5,1\n").find("links.csv:3: step"), std::string::npos);
  EXPECT_NE(error_of(head + "1,a,b,5,nan\n").find("transfer_s"), std::string::npos);
}

}  // namespace
}  // namespace tapas::ctl
