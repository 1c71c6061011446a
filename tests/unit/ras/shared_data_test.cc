// Replies captured from NCCL 2.28.9's RAS service, where they lie beside the working tree.
#include "agent/ras/output.h"
#include "agent/ras/report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tapas::agent::ras {
namespace {

namespace fs = std::filesystem;

class RasTranscripts : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) {
      GTEST_SKIP() << folder_ << " is not there";
    }
  }

  [[nodiscard]] Report read(const std::string& name) const {
    std::ifstream in(folder_ / name);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    auto report = parse_report(text);
    EXPECT_TRUE(report.has_value()) << name << ": " << report.error().message;
    if (!report) {
      return {};
    }
    EXPECT_EQ(report->nccl_version, "2.28.9") << name;
    EXPECT_EQ(report->nodes, 1) << name;
    EXPECT_EQ(report->processes, 4) << name;
    EXPECT_EQ(report->gpus, 4) << name;
    return *std::move(report);
  }

  /// The text, asked first, and the JSON, asked moments later, of one situation.
  [[nodiscard]] std::vector<Report> both(const std::string& situation) const {
    return {read(situation + ".txt"), read(situation + ".json")};
  }

  static void expect(const Finding& finding, Kind kind, std::int64_t rank, std::int64_t pid) {
    EXPECT_EQ(finding.kind, kind) << sentence(finding);
    EXPECT_EQ(finding.host, "127.0.0.1");
    EXPECT_EQ(finding.pid, pid);
    EXPECT_EQ(finding.gpu, std::to_string(rank));
    ASSERT_EQ(finding.members.size(), 1U);
    EXPECT_EQ(finding.members[0].communicator, "27a079b828ff1a75");
    EXPECT_EQ(finding.members[0].rank, rank);
  }
  static void expect_rank_3_behind(const Finding& finding) {
    expect(finding, Kind::kLagging, 3, 5129);
    EXPECT_EQ(finding.operation, "AllReduce");
    EXPECT_EQ(finding.launched, 0U);
    EXPECT_GT(finding.most, 0U);
  }

  fs::path folder_ = fs::path(TAPAS_SOURCE_DIR) / ".." / "shared" / "data" / "ras";
};

TEST_F(RasTranscripts, HealthyIsHealthy) {
  const auto reports = both("healthy");
  EXPECT_TRUE(reports[0].findings.empty());
  // The JSON caught rank 0 one launch behind: the kind of moment that a second look is for.
  for (const Finding& finding : reports[1].findings) {
    EXPECT_TRUE(may_pass(finding.kind)) << sentence(finding);
  }
  EXPECT_TRUE(lasting(reports[0], reports[1]).findings.empty());
}

TEST_F(RasTranscripts, RankThreeLags) {
  auto reports = both("lagging-rank3");
  reports.push_back(lasting(reports[0], reports[1]));
  for (const Report& report : reports) {
    ASSERT_EQ(report.findings.size(), 1U);
    expect_rank_3_behind(report.findings[0]);
  }
}

TEST_F(RasTranscripts, RankTwoIsStopped) {
  auto reports = both("stopped-rank2");
  EXPECT_EQ(reports[0].timeouts, 2);
  reports.push_back(lasting(reports[0], reports[1]));
  for (const Report& report : reports) {
    ASSERT_EQ(report.findings.size(), 2U);
    expect(report.findings[0], Kind::kUnresponsive, 2, 5127);
    expect_rank_3_behind(report.findings[1]);
  }
}

TEST_F(RasTranscripts, RankTwoIsDead) {
  auto reports = both("dead-rank2");
  reports.push_back(lasting(reports[0], reports[1]));
  for (const Report& report : reports) {
    ASSERT_EQ(report.findings.size(), 2U);
    expect(report.findings[0], Kind::kDead, 2, 5127);
    expect_rank_3_behind(report.findings[1]);
  }
}

TEST_F(RasTranscripts, AreAllKnownHere) {
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    if (name != "INDEX.md") {
      EXPECT_EQ(read(name).communicators.size(), 1U) << name;
    }
  }
}

}  // namespace
}  // namespace tapas::agent::ras
