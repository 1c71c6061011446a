#include "ctl/replay_inspector.h"

#include "ctl/recording.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tapas::ctl {
namespace {

using daemon::Cause;
using Slowdown = std::function<double(int step, int rank)>;

void ignore(double /*done*/) {}

std::string line(const std::string& id, int rank, int size, int process, double time_s, int number,
                 std::uint64_t bytes, double seconds) {
  return fmt::format(
      R"({{"header":{{"id":"{}","rank":{},"n_ranks":{},"nnodes":2}},)"
      R"("metadata":{{"inspector_output_format_version":"v4.0","dump_timestamp_us":{},)"
      R"("hostname":"host{}","pid":{}}},"coll_perf":{{"coll":"AllReduce","coll_sn":{},)"
      R"("coll_msg_size_bytes":{},"coll_exec_time_us":{},"coll_timing_source":"kernel_gpu",)"
      R"("coll_algobw_gbs":1.5,"coll_busbw_gbs":2.5}}}})"
      "\n",
      id, rank, size, static_cast<std::uint64_t>(1e6 * (1000 + time_s)), process / 4, 100 + process,
      number, bytes, static_cast<std::uint64_t>(seconds * 1e6));
}

/// Replicas of 0.3 s of compute a step, then three buckets of gradients of 10 ms each, the first
/// with the wait for the slowest; one file after the other, written every `every` steps.
std::string replicas(int ranks, int steps, int every, const Slowdown& slowdown) {
  std::vector<std::string> files(static_cast<std::size_t>(ranks));
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(1, 0.01);
  double time_s = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> compute_s;
    for (int rank = 0; rank < ranks; ++rank) {
      compute_s.push_back(0.3 * noise(random) * slowdown(step, rank));
    }
    const double slowest_s = *std::max_element(compute_s.begin(), compute_s.end());
    time_s += slowest_s + 0.03;
    const double written_s = 0.34 * every * (step / every + 1);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int bucket = 0; bucket < 3; ++bucket) {
        const double wait_s =
            bucket == 0 ? slowest_s - compute_s[static_cast<std::size_t>(rank)] : 0;
        files[static_cast<std::size_t>(rank)] +=
            line("0xd0", rank, ranks, rank, every == 1 ? time_s : written_s, 3 * step + bucket,
                 bucket == 2 ? 7'000'000 : 25'000'000, 0.01 * noise(random) + wait_s);
      }
    }
  }
  std::string text;
  for (const std::string& file : files) {
    text += file;
  }
  return text;
}

std::vector<Communicator> read(const std::string& text) {
  const auto recording = recording_of("all.jsonl", text);
  EXPECT_TRUE(recording && *recording == Recording::kInspector);
  auto out = read_inspector("all.jsonl", text, ignore);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? std::move(*out) : std::vector<Communicator>{};
}
std::string error_of(const std::string& text) {
  const auto out = read_inspector("all.jsonl", text, ignore);
  return out ? "" : out.error().message;
}

TEST(ReplayInspector, WhoComesLastIsNamedNotWhoWaits) {
  const auto communicators = read(replicas(8, 200, 1, [](int step, int rank) {
    return rank == 5 && step >= 60 && step < 120 ? 1.4 : 1.0;
  }));
  ASSERT_EQ(communicators.size(), 1U);
  EXPECT_EQ(communicators[0].per_step, 3U);
  EXPECT_EQ(communicators[0].trace.steps, 200U);
  EXPECT_NEAR(communicators[0].step_s, 0.33 + 0.3 * 0.12, 0.02);
  const auto episodes = replay_inspector(communicators, ignore).at(0);
  ASSERT_EQ(episodes.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.cause, Cause::kDevice);
  ASSERT_EQ(episodes[0].verdict.culprits.size(), 1U);
  EXPECT_EQ(episodes[0].verdict.culprits[0].node, "rank-5@host1");
  EXPECT_EQ(episodes[0].verdict.since.step, 60U);
  EXPECT_LE(episodes[0].verdict_step, 66U);
  // 40 % of the compute, told as a share of the whole step: not more than it was.
  EXPECT_GT(episodes[0].verdict.slowdown, 1.25);
  EXPECT_LE(episodes[0].verdict.slowdown, 1.4);
  ASSERT_TRUE(episodes[0].end_step);
  EXPECT_LE(*episodes[0].end_step, 130U);
  const json::Value json = inspector_json(communicators, {episodes});
  EXPECT_EQ(json["communicators"][0]["collectives_per_step"], 3);
  EXPECT_EQ(json["episodes"][0]["communicator"], "0xd0");
  EXPECT_EQ(json["episodes"][0]["culprit_ranks"], (std::vector<int>{5}));
  EXPECT_NE(inspector_text(communicators, {episodes}).find("8 of 8 ranks, 3 collectives"),
            std::string::npos);
}

TEST(ReplayInspector, RanksThatAreAlikeGiveNothing) {
  for (const int every : {1, 7}) {
    const auto communicators = read(replicas(8, 140, every, [](int, int) { return 1.0; }));
    EXPECT_TRUE(replay_inspector(communicators, ignore).at(0).empty()) << every;
  }
}

/// Two groups of tensor parallelism, ranks 0-3 and 4-7; the gradients go from a rank to its equal
/// in the other group. Rank 5 is slow: its whole group comes late to the gradients.
TEST(ReplayInspector, WhoMayHaveWaitedElsewhereIsNotBlamed) {
  std::string text;
  for (int rank = 0; rank < 8; ++rank) {
    double time_s = 0;
    for (int step = 0; step < 150; ++step) {
      const bool slow = step >= 60;
      time_s += slow ? 0.45 : 0.33;
      const double jitter_s = 0.001 * ((step * 7 + rank * 3) % 5);
      const double in_group_s = 0.01 + jitter_s + (slow && rank > 3 && rank != 5 ? 0.12 : 0);
      const double between_s = 0.01 + jitter_s + (slow && rank < 4 ? 0.12 : 0);
      text +=
          line(rank < 4 ? "0xa0" : "0xa1", rank % 4, 4, rank, time_s, step, 1'000'000, in_group_s);
      text += line(fmt::format("0xb{}", rank % 4), rank / 4, 2, rank, time_s, step, 9'000'000,
                   between_s);
    }
  }
  const auto communicators = read(text);
  ASSERT_EQ(communicators.size(), 6U);
  std::size_t told = 0;
  for (const auto& episodes : replay_inspector(communicators, ignore)) {
    for (const Episode& episode : episodes) {
      ++told;
      EXPECT_TRUE(episode.verdict.culprits.empty()) << episode.verdict.sentence;
    }
  }
  EXPECT_GT(told, 0U);
}

TEST(ReplayInspector, ErrorsNameTheLineAndWhatToDo) {
  const std::string good = line("0xd0", 0, 2, 0, 1, 0, 1, 0.01);
  EXPECT_NE(error_of(good).find("cat *.log"), std::string::npos);
  EXPECT_NE(error_of(good + "{\"header\":{}}\n").find("all.jsonl:2: no record"), std::string::npos);
  EXPECT_NE(error_of(good + "{]\n").find("all.jsonl:2:"), std::string::npos);
  EXPECT_NE(error_of(good + line("0xd0", 1, 2, 1, 1, 0, 1, 0.01)).find("DUMP_THREAD_INTERVAL"),
            std::string::npos);
  EXPECT_NE(error_of(line("0xd0", 0, 2, 0, 2, 0, 1, 0.01) + good).find("dump_timestamp_us"),
            std::string::npos);
  std::string cpu = good;
  cpu.replace(cpu.find("kernel_gpu"), 10, "collective_cpu");
  EXPECT_NE(error_of(cpu).find("timed by the CPU"), std::string::npos);
}

}  // namespace
}  // namespace tapas::ctl
