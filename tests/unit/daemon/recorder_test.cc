#include "daemon/recording/recorder.h"

#include "daemon/recording/replay.h"
#include "fixtures.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tapas::daemon {
namespace {

namespace fs = std::filesystem;
using recording::Replayed;
using recording::Step;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Replayed replayed(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  auto out = recording::replay(in, [](const Step&, const std::vector<Action>&, bool) {});
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? *std::move(out) : Replayed{};
}

/// A core that is recorded, as main() does it.
struct Recorded {
  Core core{{}, {tiny_jobs().begin()->second}, {}};
  std::unique_ptr<Recorder> recorder;
  Now now;

  Recorded(const std::string& path, const Recorder::Limits& limits) {
    auto opened = Recorder::open(path, limits, {"0", {}, tiny_jobs(), {}});
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    recorder = opened ? *std::move(opened) : nullptr;
  }
  void tell(const Event& event, std::size_t times = 1) {
    for (std::size_t i = 0; i < times; ++i) {
      now.steady += std::chrono::milliseconds(100);
      now.wall_ns += 100'000'000;
      recorder->add(event, now, core.apply(event, now));
    }
  }
};

TEST(Recorder, WritesWhatCanBeReplayed) {
  const TempDir dir;
  const std::string path = dir / "recording.jsonl";
  {
    Recorded recorded(path, {});
    recorded.tell(Tick{}, 100);
    recorded.tell(OperatorCommand{1, "uid 0 (root)", Drain{"node-1", "fan"}});
  }
  const Replayed out = replayed(path);
  EXPECT_EQ(out.events, 101U);
  EXPECT_FALSE(out.first);
  EXPECT_EQ(out.end, "tapasd stopped");
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07137U, 0U) << "others may read it, or it may be run";
}

TEST(Recorder, MovesTheOneBeforeAwayAndTouchesNothingElse) {
  const TempDir dir;
  const std::string path = dir / "recording.jsonl";
  write_file(path, "old\n");
  { const Recorded recorded(path, {}); }
  EXPECT_EQ(text_of(path + ".1"), "old\n");
  EXPECT_EQ(replayed(path).events, 0U);

  write_file(dir / "target", "precious\n");
  fs::remove(path);
  fs::create_symlink(dir / "target", path);
  const auto link = Recorder::open(path, {}, {"0", {}, tiny_jobs(), {}});
  ASSERT_FALSE(link);
  EXPECT_NE(link.error().message.find(path), std::string::npos);
  EXPECT_EQ(text_of(dir / "target"), "precious\n");
  const auto nowhere = Recorder::open(dir / "no/where", {}, {"0", {}, tiny_jobs(), {}});
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message.find("folder"), std::string::npos);
}

TEST(Recorder, EndsAtItsSizeAndSaysSo) {
  const TempDir dir;
  const std::string path = dir / "recording.jsonl";
  Recorder::Limits limits;
  limits.file_bytes = 1U << 20U;
  {
    Recorded recorded(path, limits);
    recorded.tell(Tick{}, 30'000);
  }
  EXPECT_LE(fs::file_size(path), limits.file_bytes);
  EXPECT_GT(fs::file_size(path), limits.file_bytes * 99 / 100);
  const Replayed out = replayed(path);
  EXPECT_GT(out.events, 1000U);
  EXPECT_LT(out.events, 30'000U);
  EXPECT_FALSE(out.first);
  ASSERT_TRUE(out.end);
  EXPECT_NE(out.end->find("recording_mib"), std::string::npos);

  limits.file_bytes = 1000;
  const auto small = Recorder::open(path, limits, {"0", {}, tiny_jobs(), {}});
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("raise recording_mib"), std::string::npos);
}

TEST(Recorder, EndsWithoutAHoleWhenTheDiskDoesNotKeepUp) {
  const TempDir dir;
  const std::string path = dir / "recording.jsonl";
  Recorder::Limits limits;
  limits.waiting_bytes = 4096;
  {
    Recorded recorded(path, limits);
    // A line that alone is more than may wait.
    recorded.tell(OperatorCommand{1, std::string(8192, 'w'), Drain{"node-1", "fan"}});
    recorded.tell(Tick{}, 10);
  }
  const Replayed out = replayed(path);
  EXPECT_EQ(out.events, 0U);
  EXPECT_EQ(out.end, "the disk did not keep up");
}

TEST(Recorder, LeavesWhatCanBeReplayedWhenTheDiskRefuses) {
  const TempDir dir;
  const std::string path = dir / "recording.jsonl";
  // The file may not grow beyond this, in the middle of a line.
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {200'001, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    Recorded recorded(path, {});
    recorded.tell(Tick{}, 20'000);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(fs::file_size(path), 200'001U);
  const Replayed out = replayed(path);
  EXPECT_GT(out.events, 100U);
  EXPECT_TRUE(out.cut);
  EXPECT_FALSE(out.first);
  EXPECT_FALSE(out.end);
}

}  // namespace
}  // namespace tapas::daemon
