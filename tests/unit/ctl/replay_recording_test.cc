#include "ctl/replay_recording.h"

#include "ctl/recording.h"
#include "daemon/recording/format.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tapas::ctl {
namespace {

using daemon::AgentHello;
using daemon::Event;
using daemon::JobMap;
using daemon::Now;
using daemon::Tick;

void ignore(double /*done*/) {}

/// An agent comes and is lost, as a daemon of this program recorded it.
std::string recorded() {
  const JobMap jobs =
      daemon::load_jobs({TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"}).value();
  daemon::Core core({}, {jobs.begin()->second}, {});
  std::string text;
  daemon::recording::append_beginning({TAPAS_VERSION, {}, jobs, {}}, text);
  text += '\n';
  Now now{std::chrono::seconds(1), 1'796'079'600'500'000'000};
  const Event events[] = {AgentHello{"node-1", 1, Term(0), {}}, Tick{}};
  for (const Event& event : events) {
    daemon::recording::append_step(jobs, event, now, core.apply(event, now), text);
    text += '\n';
    now.steady += std::chrono::seconds(60);
    now.wall_ns += 60'000'000'000;
  }
  return text;
}

class ReplayRecording : public ::testing::Test {
 protected:
  ReplayRecording() {
    std::string pattern = "/tmp/tapas-unit-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ReplayRecording() override { std::filesystem::remove_all(folder_); }
  Result<ReplayedRecording> replay(std::string_view text) const {
    const std::string path = folder_ + "/recording.jsonl";
    std::ofstream(path, std::ios::binary) << text;
    return replay_recording(path, ignore);
  }
  std::string folder_;
};

TEST_F(ReplayRecording, TellsWhatHappenedAndThatItIsTheSame) {
  const std::string text = recorded();
  const auto kind = recording_of("recording.jsonl", text.substr(0, 4096));
  ASSERT_TRUE(kind);
  EXPECT_EQ(*kind, Recording::kDecisions);
  const auto replayed = replay(text + "{\"end\":\"tapasd stopped\"}\n");
  ASSERT_TRUE(replayed) << replayed.error().message;
  const std::string shown = recording_text(*replayed);
  EXPECT_NE(shown.find("agent of node-1 is connected"), std::string::npos) << shown;
  EXPECT_NE(shown.find("agent of node-1 is lost"), std::string::npos) << shown;
  EXPECT_NE(shown.find("2 events, recorded by tapasd " TAPAS_VERSION " from "), std::string::npos)
      << shown;
  EXPECT_NE(shown.find("all decisions, verdicts and orders are the same; it ends because tapasd "
                       "stopped"),
            std::string::npos)
      << shown;
  EXPECT_EQ(shown.find('!'), std::string::npos) << shown;
  const json::Value value = recording_json(*replayed);
  EXPECT_EQ(value["same"], true);
  EXPECT_EQ(value["end"], "tapasd stopped");
  EXPECT_EQ(value["lines"].back()["kind"], "agent_lost");
}

TEST_F(ReplayRecording, ShowsTheFirstDifference) {
  std::string text = recorded();
  const std::size_t lost = text.find("agent of node-1 is lost");
  ASSERT_NE(lost, std::string::npos);
  text.replace(lost, 15, "agent of node-9");
  const auto replayed = replay(text);
  ASSERT_TRUE(replayed) << replayed.error().message;
  const std::string shown = recording_text(*replayed);
  EXPECT_NE(shown.find("first difference in line 3"), std::string::npos) << shown;
  EXPECT_NE(shown.find("agent of node-9 is lost"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\n!"), std::string::npos) << shown;
  EXPECT_NE(shown.find("after 1 of them this core does something else"), std::string::npos)
      << shown;
}

TEST_F(ReplayRecording, NamesFileAndLineOfWhatIsDamaged) {
  std::string text = recorded();
  text.replace(text.find("agent_hello"), 5, "xxxxx");
  const auto replayed = replay(text);
  ASSERT_FALSE(replayed);
  EXPECT_NE(replayed.error().message.find("recording.jsonl: line 2: "), std::string::npos)
      << replayed.error().message;
  EXPECT_FALSE(replay_recording(folder_ + "/nothing", ignore));
}

}  // namespace
}  // namespace tapas::ctl
