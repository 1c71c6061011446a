#include "agent/ras/output.h"
#include "agent/ras/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tapas::agent::ras {
namespace {

constexpr const char* kRunning =
    R"("init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false,
       "abort_flag": false)";

std::string place(int rank) {
  return fmt::format(
      R"("rank": {0}, "host": "10.1.0.{1}", "pid": {2}, "cuda_dev": {3}, "nvml_dev": {3})", rank,
      1 + rank / 2, 500 + rank, rank % 2);
}
std::string present(int rank, int all_reduces, const std::string& status = kRunning) {
  return fmt::format(
      R"({{ {}, "status": {{ {} }}, "collective_counts": {{"Broadcast": 3, "AllReduce": {}}} }})",
      place(rank), status, all_reduces);
}
/// As 2.28 writes it, without a comma behind "nvml_dev", or with it, as 2.29 does.
std::string absent(int rank, bool unresponsive, bool dead, bool comma = false) {
  return fmt::format(R"({{ {}{}
            "status": {{ "unresponsive": {}, "considered_dead": {} }} }})",
                     place(rank), comma ? "," : "", unresponsive, dead);
}
std::string communicator(const std::string& hash, int size, const std::vector<std::string>& ranks,
                         const std::vector<std::string>& missing) {
  return fmt::format(
      R"({{"hash": "0x{}", "secondary_hash": "0x1:0x2", "size": {}, "ranks_count": {},
          "missing_ranks_count": {}, "ranks": [{}], "missing_ranks": [{}] }})",
      hash, size, ranks.size(), missing.size(), fmt::join(ranks, ","), fmt::join(missing, ","));
}
std::string report(const std::vector<std::string>& communicators) {
  return fmt::format(
      R"({{"nccl_version": "2.28.9", "timestamp": "2026-01-02 03:04:05", "a_field_of_later": [1],
 "communicators_count": {},
 "communicators": [{}],
 "ras": {{"collection_time_sec": 0.250, "timeouts_count": 2}} }})",
      communicators.size(), fmt::join(communicators, ","));
}

Report parsed(const std::string& text) {
  auto result = parse_report(text);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result ? *std::move(result) : Report{};
}
std::string refusal(const std::string& text) {
  const auto result = parse_report(text);
  return result ? "accepted" : result.error().message;
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(RasJson, FindsNothingInAHealthyJob) {
  const Report healthy = parsed(report(
      {communicator("27a0", 4, {present(0, 7), present(1, 7), present(2, 7), present(3, 7)}, {})}));
  EXPECT_EQ(healthy.nccl_version, "2.28.9");
  EXPECT_EQ(healthy.nodes, 2);
  EXPECT_EQ(healthy.processes, 4);
  EXPECT_EQ(healthy.gpus, 4);
  EXPECT_EQ(healthy.timeouts, 2);
  ASSERT_EQ(healthy.communicators.size(), 1U);
  EXPECT_EQ(healthy.communicators[0].hash, "00000000000027a0");
  EXPECT_EQ(healthy.communicators[0].size, 4);
  EXPECT_TRUE(healthy.findings.empty());
}

TEST(RasJson, TellsDeadUnresponsiveMissingAndLaggingApart) {
  for (const bool comma : {false, true}) {
    const Report found = parsed(report(
        {communicator("1", 5, {present(0, 7), present(1, 6)},
                      {absent(2, true, true, comma), absent(3, true, false, comma),
                       absent(4, false, false, comma)}),
         communicator("2", 2, {present(0, 1)},
                      {fmt::format(R"({{"rank": 1, "host": "10.1.0.2", "pid": 502, "cuda_dev": 0,
                "nvml_dev": 0{} "status": {{"unresponsive": true, "considered_dead": true}} }})",
                                   comma ? "," : "")})}));
    ASSERT_EQ(found.findings.size(), 4U);
    EXPECT_EQ(found.findings[0].kind, Kind::kDead);
    EXPECT_EQ(found.findings[0].pid, 502);
    ASSERT_EQ(found.findings[0].members.size(), 2U);
    EXPECT_EQ(found.findings[0].members[1].communicator, "0000000000000002");
    EXPECT_EQ(found.findings[1].kind, Kind::kUnresponsive);
    EXPECT_EQ(found.findings[1].members[0].rank, 3);
    EXPECT_EQ(found.findings[2].kind, Kind::kMissing);
    EXPECT_EQ(found.findings[2].host, "10.1.0.3");
    EXPECT_EQ(sentence(found.findings[3]),
              "Process 501 on 10.1.0.1 (GPU 1, rank 1 of communicator 0000000000000001) has "
              "launched 6 AllReduce operations, others 7.");
  }
}

TEST(RasJson, TellsErrorsAndOtherStates) {
  const std::string failed =
      R"("init_state": 0, "async_error": 6, "finalize_called": false, "destroy_flag": false,
         "abort_flag": true)";
  const std::string busy =
      R"("init_state": 7, "async_error": 7, "finalize_called": false, "destroy_flag": false,
         "abort_flag": false)";
  const Report found = parsed(report({communicator(
      "1", 4, {present(0, 7), present(1, 7), present(2, 7, failed), present(3, 7, busy)}, {})}));
  ASSERT_EQ(found.findings.size(), 3U);
  EXPECT_EQ(found.findings[0].kind, Kind::kFailed);
  EXPECT_EQ(found.findings[0].detail, "Remote process error");
  EXPECT_EQ(found.findings[0].members[0].rank, 2);
  EXPECT_EQ(found.findings[1].detail, "status ABORT, most others RUNNING");
  EXPECT_EQ(found.findings[2].detail, "status INIT, most others RUNNING");
}

TEST(RasJson, CountsRanksThatAreNeitherThereNorMissing) {
  const Report found = parsed(report({communicator("1", 4, {present(0, 7)}, {})}));
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(found.findings[0].kind, Kind::kMissing);
  EXPECT_EQ(found.findings[0].count, 3);
}

TEST(RasJson, DoesNotTakeAProcessThatRasDoesNotKnowForAHost) {
  const std::string text = report({communicator("1", 1, {}, {absent(0, true, false)})});
  const Report found = parsed(
      replaced(text, R"("host": "10.1.0.1", "pid": 500)", R"("host": "unknown", "pid": -1)"));
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(found.findings[0].host, "");
  EXPECT_EQ(found.nodes, 0);
}

TEST(RasJson, RefusesCountsThatDoNotFit) {
  const std::string good =
      report({communicator("1", 3, {present(0, 7), present(1, 7)}, {absent(2, true, false)})});
  ASSERT_EQ(refusal(good), "accepted");
  EXPECT_EQ(
      refusal(replaced(good, R"("communicators_count": 1)", R"("communicators_count": 4000000)")),
      "no report of NCCL's RAS: communicators_count is 4000000, but communicators has 1");
  EXPECT_EQ(refusal(replaced(good, R"("missing_ranks_count": 1)", R"("missing_ranks_count": 0)")),
            "no report of NCCL's RAS: communicators[0].missing_ranks_count is 0, but missing_ranks "
            "has 1");
  EXPECT_EQ(refusal(replaced(good, R"("ranks_count": 2)", R"("ranks_count": -2)")),
            "no report of NCCL's RAS: communicators[0].ranks_count is -2, but ranks has 2");
  EXPECT_EQ(refusal(replaced(good, R"("rank": 1)", R"("rank": 0)")),
            "no report of NCCL's RAS: communicators[0].ranks[1]: rank 0 is there twice, or not one "
            "of the 3 of its communicator");
  EXPECT_EQ(refusal(replaced(good, R"("size": 3)", R"("size": 2)")),
            "no report of NCCL's RAS: communicators[0].missing_ranks[0]: rank 2 is there twice, or "
            "not one of the 2 of its communicator");
  EXPECT_EQ(refusal(replaced(good, R"("size": 3)", R"("size": 3e18)")),
            "no report of NCCL's RAS: communicators[0].size is not an integer below 2^31: 3e+18");
}

TEST(RasJson, RefusesOtherTypesAndSaysWhere) {
  const std::string good = report({communicator("1", 1, {present(0, 7)}, {})});
  EXPECT_EQ(refusal(replaced(good, R"("AllReduce": 7)", R"("AllReduce": -7)")),
            "no report of NCCL's RAS: communicators[0].ranks[0].collective_counts.AllReduce is not "
            "a count: -7");
  EXPECT_EQ(refusal(replaced(good, R"("abort_flag": false)", R"("abort_flag": "no")")),
            "no report of NCCL's RAS: communicators[0].ranks[0].abort_flag is not true or false: "
            "\"no\"");
  EXPECT_EQ(refusal(replaced(good, R"("pid": 500)", R"("pid": null)")),
            "no report of NCCL's RAS: communicators[0].ranks[0].pid is not an integer below 2^31: "
            "null");
  EXPECT_EQ(refusal("{}"), "no report of NCCL's RAS: it has no \"nccl_version\"");
}

TEST(RasJson, RefusesWhatIsCutOffAndSaysOnWhichLine) {
  const std::string good = report({communicator("1", 1, {present(0, 7)}, {})});
  const std::string said = refusal(good.substr(0, good.find("\"ras\"")));
  EXPECT_NE(said.find("line 6, column 1"), std::string::npos) << said;
}

TEST(RasJson, RepairsNothingElse) {
  const std::string good = report({communicator("1", 1, {present(0, 7)}, {})});
  EXPECT_NE(refusal(replaced(good, R"("pid": 500,)", R"("pid": 500)")), "accepted");
}

TEST(RasJson, AnswersAsSchemaOne) {
  const json::Value out = to_json(parsed(
      report({communicator("1", 3, {present(0, 7), present(1, 6)}, {absent(2, true, true)})})));
  EXPECT_EQ(json::dump(out),
            R"({"schema":"tapas.ras/1","nccl_version":"2.28.9","nodes":2,"processes":3,"gpus":3,)"
            R"("timeouts":2,"communicators":[{"count":1,"size":3,"hash":"0000000000000001"}],)"
            R"("findings":[{"kind":"dead","count":1,"host":"10.1.0.2","pid":502,"gpu":"0",)"
            R"("ranks":[{"communicator":"0000000000000001","rank":2}],)"
            R"("sentence":"Process 502 on 10.1.0.2 (GPU 0, rank 2 of communicator )"
            R"(0000000000000001) is dead: NCCL has given up reaching it."},)"
            R"({"kind":"lagging","count":1,"host":"10.1.0.1","pid":501,"gpu":"1",)"
            R"("ranks":[{"communicator":"0000000000000001","rank":1}],"operation":"AllReduce",)"
            R"("launched":6,"most":7,"sentence":"Process 501 on 10.1.0.1 (GPU 1, rank 1 of )"
            R"(communicator 0000000000000001) has launched 6 AllReduce operations, others 7."}],)"
            R"("findings_left_out":0})");
}

}  // namespace
}  // namespace tapas::agent::ras
