// From NCCL's events to a verdict: what the plugin tells of a job with one slow rank is enough for
// the detector.
#include "tests/unit/nccl/driver.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace tapas::nccl {
namespace {

constexpr std::uint32_t kRanks = 8;
constexpr std::uint32_t kSlowRank = 5;

/// One rank of a data-parallel job: a plugin and what is under way on its GPU.
struct Rank {
  std::unique_ptr<Driver> nccl;
  void* context = nullptr;
  std::uint64_t free_ns = 1;  ///< when its GPU is done with what was before
};

/// A collective of all ranks: it begins where each arrives and ends for all `transfer_ns` after the
/// last one.
void all_reduce(std::vector<Rank>& ranks, std::size_t count, std::uint64_t transfer_ns) {
  std::uint64_t last_ns = 0;
  for (const Rank& rank : ranks) {
    last_ns = std::max(last_ns, rank.free_ns);
  }
  for (Rank& rank : ranks) {
    const bool timed = rank.nccl->asked_for(abi::kKernelCh);
    void* handle = rank.nccl->coll(rank.context, "AllReduce", count);
    rank.nccl->stop(handle);
    if (timed) {
      rank.nccl->run(handle, rank.free_ns, last_ns + transfer_ns);
    }
    rank.free_ns = last_ns + transfer_ns;
  }
}

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (pipe != nullptr && std::fgets(buffer, sizeof(buffer), pipe) != nullptr) {
    text += buffer;
  }
  EXPECT_TRUE(pipe != nullptr && ::pclose(pipe) == 0) << command << ": " << text;
  return text;
}

/// Of so many steps one is measured.
class PluginRecords : public testing::TestWithParam<std::uint64_t> {};

INSTANTIATE_TEST_SUITE_P(OneStepOf, PluginRecords, testing::Values(1, 8));

TEST_P(PluginRecords, NameTheRankThatOthersWaitFor) {
  const std::uint64_t every = GetParam();
  const std::uint64_t slow_from = 300 * every;
  const std::uint64_t steps = 500 * every;
  std::string list;
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    list += fmt::format("{} n{}\n", i, i);
  }
  std::vector<Rank> ranks(kRanks);
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    ranks[i].nccl = std::make_unique<Driver>(5);
    ranks[i].nccl->be(i, list, i, fmt::format("n{}", i));
    set_environment("TAPAS_NCCL_EVERY", std::to_string(every));
    ranks[i].context = ranks[i].nccl->communicator(kRanks, static_cast<int>(i));
    ASSERT_NE(ranks[i].context, nullptr);
  }
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(1.0, 0.01);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    for (int bucket = 0; bucket < 4; ++bucket) {
      for (std::uint32_t i = 0; i < kRanks; ++i) {
        const double slowdown = i == kSlowRank && step >= slow_from ? 1.3 : 1.0;
        ranks[i].free_ns += static_cast<std::uint64_t>(25e6 * slowdown * noise(random));
      }
      all_reduce(ranks, bucket == 3 ? 5'000'000 : 1'000'000, 2'000'000);
    }
  }
  TemporaryFolder folder;
  const std::string csv = folder.file("steps.csv");
  std::vector<std::string> rows;
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    for (const wire::StepRecord& record : ranks[i].nccl->steps()) {
      rows.push_back(fmt::format("{:06},{},{},{}", record.step, i, record.forward_us * 1e-6,
                                 record.wall_us * 1e-6));
    }
    ranks[i].nccl->finalize(ranks[i].context);
  }
  std::sort(rows.begin(), rows.end());
  {
    std::ofstream out(csv);
    out << "step,rank,compute_s,step_span_s\n";
    for (const std::string& row : rows) {
      out << row << '\n';
    }
  }
  EXPECT_GT(rows.size(), kRanks * (500 - 20));
  const std::string answer = output_of(TAPAS_PROGRAM_DIR "/tapasctl replay -o json " + csv);
  EXPECT_NE(
      answer.find(fmt::format(
          "node rank-5 computes 1.30 times as long as its 7 equals since step {}", slow_from)),
      std::string::npos)
      << answer;
  EXPECT_EQ(answer.find("\"cause\""), answer.rfind("\"cause\"")) << "and nobody else: " << answer;
}

}  // namespace
}  // namespace tapas::nccl
