#include "ctl/replay_journal.h"

#include "ctl/recording.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace tapas::ctl {
namespace {

void ignore(double /*done*/) {}

/// An event of the job "gpt" at a second of the day.
std::string event(int second, std::string_view kind, std::string_view node,
                  std::string_view sentence, std::string_view evidence = "{}") {
  return fmt::format(
      R"({{"id":{0},"time":"2026-11-29T12:{1:02}:{2:02}.500Z","job":"gpt","kind":"{3}",)"
      R"("node":"{4}","sentence":"{5}","evidence":{6}}})"
      "\n",
      second, second / 60, second % 60, kind, node, sentence, evidence);
}
constexpr std::string_view kSlow =
    R"({"node":"n3","ranks":"24, 25","compared_with":"0, 8, ...","cause":"device","slowdown":1.5,)"
    R"("level_before":1.0,"level_after":1.5,"confidence_sigma":9.5,"since_step":120,"detect_s":7.5})";

Journal read(const std::string& text) {
  const auto recording = recording_of("events.jsonl", text);
  EXPECT_TRUE(recording && *recording == Recording::kEvents);
  const auto journal = read_events("events.jsonl", text, ignore);
  EXPECT_TRUE(journal) << (journal ? "" : journal.error().message);
  return journal ? *journal : Journal{};
}
std::vector<ToldEpisode> told(const std::string& text) { return episodes_of(read(text)); }

TEST(ReplayJournal, ASlowNodeIsToldFromItsFirstSlowStepToItsEnd) {
  const std::string text =
      event(1, "plan_active", "", "plan 1") + event(60, "verdict", "n3", "n3 is slow", kSlow) +
      event(61, "decision", "", "stay") +
      event(90, "verdict", "n3", "n3 takes 1.7 times", R"({"node":"n3","slowdown":1.7})") +
      event(100, "recovery", "n4", "n4 is well", R"({"cause":"device","node":"n4"})") +
      event(110, "recovery", "n3", "n3 is well", R"({"cause":"device","node":"n3"})");
  const Journal journal = read(text);
  EXPECT_EQ(journal.events, 6U);
  const auto episodes = episodes_of(journal);
  ASSERT_EQ(episodes.size(), 1U);
  ASSERT_EQ(episodes[0].later.size(), 1U);
  ASSERT_TRUE(episodes[0].end);
  const json::Value json = told_json(journal, episodes);
  const json::Value& entry = json["episodes"][0];
  EXPECT_EQ(json["events"], 6);
  EXPECT_EQ(entry["cause"], "device");
  EXPECT_EQ(entry["since_time"], "2026-11-29T12:00:53.000Z");
  EXPECT_EQ(entry["since_step"], 120);
  EXPECT_EQ(entry["verdict_time"], "2026-11-29T12:01:00.500Z");
  EXPECT_EQ(entry["end_time"], "2026-11-29T12:01:50.500Z");
  EXPECT_EQ(entry["culprit_ranks"], (std::vector<int>{24, 25}));
  EXPECT_EQ(entry["compared_ranks"], (std::vector<int>{0, 8}));
  EXPECT_EQ(entry["level_after"], 1.5);
  EXPECT_EQ(entry["sentence"], "n3 is slow");
  const std::string shown = told_text(journal, episodes);
  for (const char* part : {"n3 is slow", "step 120", "9.5 standard errors", "n3 takes 1.7 times",
                           "over at 2026-11-29T12:01:50.500Z", "6 events", "1 episode"}) {
    EXPECT_NE(shown.find(part), std::string::npos) << part << "\n" << shown;
  }
}

TEST(ReplayJournal, EachCauseHasItsOwnEnd) {
  const std::string verdicts =
      event(1, "verdict", "n3", "slow", kSlow) +
      event(2, "verdict", "n3", "sends slowly",
            R"({"cause":"link","part":"send","from":"n3","to":"n3"})") +
      event(3, "verdict", "n3", "slow way",
            R"({"cause":"link","part":"path","from":"n3","to":"n5"})") +
      event(4, "verdict", "", "heavy", R"({"cause":"heavy_stage","stages":"1, 3"})") +
      event(5, "verdict", "", "uneven", R"({"cause":"data"})") +
      event(6, "verdict", "", "slower",
            R"({"cause":"job_wide","level_before_s":1.0,"level_after_s":1.2})");
  const auto ended = [&](const std::string& end) {
    std::string out;
    const auto episodes = told(verdicts + end);
    EXPECT_EQ(episodes.size(), 6U);
    for (const ToldEpisode& episode : episodes) {
      out += episode.end ? 'x' : '.';
    }
    return out;
  };
  EXPECT_EQ(ended(""), "......");
  EXPECT_EQ(ended(event(9, "recovery", "n3", "", R"({"cause":"device","node":"n3"})")), "x.....");
  EXPECT_EQ(ended(event(9, "recovery", "n3", "",
                        R"({"cause":"link","part":"path","from":"n3","to":"n5"})")),
            "..x...");
  EXPECT_EQ(ended(event(9, "recovery", "n3", "",
                        R"({"cause":"link","part":"send","from":"n3","to":"n3"})")),
            ".x....");
  EXPECT_EQ(ended(event(9, "recovery", "", "", R"({"cause":"heavy_stage","stages":"3"})")),
            "...x..");
  EXPECT_EQ(ended(event(9, "recovery", "", "", R"({"cause":"heavy_stage","stages":"2"})")),
            "......");
  EXPECT_EQ(ended(event(9, "recovery", "", "", R"({"cause":"data"})")), "....x.");
  EXPECT_EQ(ended(event(9, "recovery", "", "", R"({"cause":"job_wide"})")), ".....x");
  // Devices and links are remembered over a restart of the job, levels of the work are not.
  EXPECT_EQ(ended(event(9, "session", "", "started anew")), "...xxx");
}

TEST(ReplayJournal, TheAnswerOfTheDaemonAndItsEventsByLineAreTheSame) {
  const std::string one = event(60, "verdict", "n3", "n3 is slow", kSlow);
  const json::Value document = {
      {"schema", "tapas.events/1"}, {"events", {json::parse(one).value()}}, {"last", 60}};
  const json::Value lines = told_json(read(one), told(one));
  for (const int indent : {-1, 2}) {
    const std::string text = json::dump(document, indent) + "\n";
    EXPECT_EQ(json::dump(told_json(read(text), told(text))), json::dump(lines));
  }
}

TEST(ReplayJournal, ErrorsNameTheLineAndOtherJsonIsRefused) {
  const std::string good = event(1, "verdict", "n3", "slow", kSlow);
  const auto error = [](const std::string& text) {
    const auto journal = read_events("events.jsonl", text, ignore);
    return journal ? std::string() : journal.error().message;
  };
  EXPECT_NE(error(good + "\n{\"kind\":\"verdict\"}\n").find("events.jsonl:3: no event"),
            std::string::npos);
  EXPECT_NE(error(good + good.substr(0, 40)).find("events.jsonl:2:"), std::string::npos);
  EXPECT_NE(error(good + "7\n").find("events.jsonl:2: no event"), std::string::npos);
  EXPECT_NE(error(R"({"schema":"tapas.events/1","events":[7]})").find("events[0]"),
            std::string::npos);
  const auto other = recording_of("x.json", "{\"schema\":\n \"tapas.plan/1\"}");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("tapas.plan/1"), std::string::npos);
  EXPECT_FALSE(recording_of("x.json", "{]"));
  EXPECT_EQ(*recording_of("x", "step,src,dst,bytes,transfer_s\n"), Recording::kTransfers);
  EXPECT_EQ(*recording_of("x", "step,iteration_time_s\n"), Recording::kTable);
  EXPECT_EQ(*recording_of("x", std::string("SQLite format 3\0....", 20)), Recording::kStore);
}

}  // namespace
}  // namespace tapas::ctl
