#include "agent/ras/output.h"
#include "agent/ras/report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tapas::agent::ras {
namespace {

/// A report around a table line and the blocks of its two last sections.
std::string report(const std::string& table, const std::string& errors,
                   const std::string& warnings) {
  return "NCCL version 2.28.9 compiled with CUDA 13.0\n"
         "CUDA runtime version 13000, driver version 13010\n\n"
         "Job summary\n"
         "===========\n\n"
         "  Nodes  Processes         GPUs  Processes     GPUs\n"
         "(total)   per node  per process    (total)  (total)\n"
         "      3          8            1         24       24\n\n"
         "Communicators... (0.12s)\n"
         "=============\n\n"
         "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
         "    #  in group  per comm  per node  per comm  in group\n" +
         table + "\nErrors\n======\n\n" + errors + "\nWarnings\n========\n\n" + warnings;
}

Report parsed(const std::string& text) {
  auto result = parse_report(text);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result ? *std::move(result) : Report{};
}

std::vector<std::string> sentences(const Report& report) {
  std::vector<std::string> all;
  for (const Finding& finding : report.findings) {
    all.push_back(sentence(finding));
  }
  return all;
}

using Sentences = std::vector<std::string>;

TEST(RasText, FindsNothingInAHealthyJob) {
  const Report healthy =
      parsed(report("    0         1         3         8        24        24   RUNNING      OK\n"
                    "    1         8         3         1         3        24   RUNNING      OK\n",
                    "", ""));
  EXPECT_EQ(healthy.nccl_version, "2.28.9");
  EXPECT_EQ(healthy.nodes, 3);
  EXPECT_EQ(healthy.processes, 24);
  EXPECT_EQ(healthy.gpus, 24);
  ASSERT_EQ(healthy.communicators.size(), 2U);
  EXPECT_EQ(healthy.communicators[1].count, 8);
  EXPECT_EQ(healthy.communicators[1].size, 3);
  EXPECT_EQ(sentences(healthy), Sentences{});
}

TEST(RasText, ReadsTheTotalsOfAnUnevenJob) {
  const Report uneven = parsed(
      "NCCL version 2.27.3 compiled with CUDA 12.9\n\n"
      "Job summary\n===========\n\n"
      "  Nodes  Processes\n"
      "          per node\n"
      "      2          8\n"
      "      1          2\n\n"
      "         Processes         GPUs\n"
      "                    per process\n"
      "                17            1\n"
      "                 1            4\n\n"
      "  Nodes  Processes         GPUs\n"
      "(total)    (total)      (total)\n"
      "      3         18           21\n\n"
      "The outlier node:\n"
      "  Node 10.1.0.3 running processes 11,12\n\n"
      "Communicators... (0.00s)\n=============\n\n"
      "No communicator data collected!\n\nErrors\n======\n\nWarnings\n========\n\n");
  EXPECT_EQ(uneven.nodes, 3);
  EXPECT_EQ(uneven.processes, 18);
  EXPECT_EQ(uneven.gpus, 21);
  EXPECT_TRUE(uneven.findings.empty());
}

TEST(RasText, TellsADeadProcessOnceWithAllItsRanks) {
  const Report dead = parsed(
      report("    0         1         3       7-8        24        23   RUNNING  INCOMPLETE\n"
             "    1         1         3         1         3         2   RUNNING  INCOMPLETE\n",
             "DEAD\n"
             "  1 job process is considered dead (unreachable via the RAS network)\n"
             "  Process 411 on node 10.1.0.2 managing GPU 5 (NVML 7)\n\n"
             "#0-0 (00ab54a98ceb1f0a) INCOMPLETE\n"
             "  Missing communicator data from 1 rank\n"
             "  Rank 13 -- GPU 5 (NVML 7) managed by process 411 on node 10.1.0.2\n\n"
             "#1-0 (1234567890abcdef) INCOMPLETE\n"
             "  Missing communicator data from 1 rank\n"
             "  Rank 1 -- GPU 5 (NVML 7) managed by process 411 on node 10.1.0.2\n\n",
             ""));
  ASSERT_EQ(dead.findings.size(), 1U);
  const Finding& finding = dead.findings.front();
  EXPECT_EQ(finding.kind, Kind::kDead);
  EXPECT_EQ(finding.host, "10.1.0.2");
  EXPECT_EQ(finding.pid, 411);
  EXPECT_EQ(finding.gpu, "5 (NVML 7)");
  ASSERT_EQ(finding.members.size(), 2U);
  EXPECT_EQ(finding.members[0].communicator, "00ab54a98ceb1f0a");
  EXPECT_EQ(finding.members[0].rank, 13);
  EXPECT_EQ(finding.members[1].rank, 1);
  EXPECT_EQ(sentence(finding),
            "Process 411 on 10.1.0.2 (GPU 5 (NVML 7), rank 13 of communicator 00ab54a98ceb1f0a, "
            "rank 1 of communicator 1234567890abcdef) is dead: NCCL has given up reaching it.");
}

TEST(RasText, CountsWhatRasDoesNotName) {
  const Report many = parsed(
      report("    0         1         3       2-8        24        10   RUNNING  INCOMPLETE\n",
             "INCOMPLETE\n"
             "  Missing communicator data from 12 job processes\n\n"
             "DEAD\n"
             "  2 job processes are considered dead (unreachable via the RAS network)\n"
             "  Process 9 on node 10.1.0.2 managing GPUs 0,1\n"
             "  [could not find information on 1 process]\n\n"
             "#0-0 (00ab54a98ceb1f0a) INCOMPLETE\n"
             "  Missing communicator data from 14 ranks\n\n",
             "TIMEOUT\n"
             "  Encountered 3 communication timeouts while gathering communicator data\n\n"));
  EXPECT_EQ(many.timeouts, 3);
  EXPECT_EQ(sentences(many),
            (Sentences{"12 processes, which NCCL does not name, do not answer NCCL: crashed, "
                       "stopped or cut off.",
                       "Process 9 on 10.1.0.2 (GPU 0,1) is dead: NCCL has given up reaching it.",
                       "1 process, which NCCL does not name, is dead: NCCL has given up reaching "
                       "it.",
                       "14 ranks of communicator 00ab54a98ceb1f0a, which NCCL does not name, do "
                       "not answer NCCL: crashed, stopped or cut off."}));
}

TEST(RasText, NamesThoseBehindAndNotThoseAhead) {
  const Report behind = parsed(report(
      "    0         1         3         8        24        24   RUNNING  MISMATCH\n", "",
      "#0-0 (00ab54a98ceb1f0a) MISMATCH\n"
      "  Communicator ranks have different Broadcast operation counts\n"
      "  23 ranks have launched up to operation 5\n"
      "  Rank 0 has launched up to operation 6 -- GPU 0 managed by process 100 on node 10.1.0.1\n\n"
      "  Communicator ranks have different AllReduce operation counts\n"
      "  21 ranks have launched up to operation 90\n"
      "  2 ranks have launched up to operation 88\n"
      "  Rank 8 -- GPU 0 managed by process 200 on node 10.1.0.2\n"
      "  Rank 9 -- [process information not found]\n"
      "  Rank 17 has not launched any operations -- GPU 1 managed by process 301 on node 10.1.0.3\n"
      "\n"));
  EXPECT_EQ(sentences(behind),
            (Sentences{"23 ranks of communicator 00ab54a98ceb1f0a, which NCCL does not name, have "
                       "launched 5 Broadcast operations, others 6.",
                       "Process 200 on 10.1.0.2 (GPU 0, rank 8 of communicator 00ab54a98ceb1f0a) "
                       "has launched 88 AllReduce operations, others 90.",
                       "Rank 9 of communicator 00ab54a98ceb1f0a has launched 88 AllReduce "
                       "operations, others 90.",
                       "Process 301 on 10.1.0.3 (GPU 1, rank 17 of communicator 00ab54a98ceb1f0a) "
                       "has launched no AllReduce operation, others 90."}));
}

TEST(RasText, TellsLeftCommunicatorsOtherStatesAndErrorsApart) {
  const Report mixed = parsed(
      report("    0         1         3         8        24        23     ABORT  ERROR,MISMATCH\n",
             "#0-0 (00ab54a98ceb1f0a) ERROR\n"
             "  Asynchronous errors on 3 ranks\n"
             "  2 ranks reported Remote process error\n"
             "  Rank 3 -- GPU 3 managed by process 103 on node 10.1.0.1\n"
             "  Rank 4 -- GPU 4 managed by process 104 on node 10.1.0.1\n"
             "  Rank 5 reported System error -- GPU 5 managed by process 105 on node 10.1.0.1\n\n",
             "#0-0 (00ab54a98ceb1f0a) MISMATCH\n"
             "  Communicator ranks have different status\n"
             "  21 ranks have status RUNNING\n"
             "  2 ranks have status ABORT\n"
             "  Rank 6 -- GPU 6 managed by process 106 on node 10.1.0.1\n"
             "  Rank 7 -- GPU 7 managed by process 107 on node 10.1.0.1\n"
             "  Rank 20 has status NOCOMM -- GPU 4 managed by process 304 on node 10.1.0.3\n\n"));
  ASSERT_EQ(mixed.findings.size(), 6U);
  EXPECT_EQ(mixed.findings[0].kind, Kind::kFailed);
  EXPECT_EQ(mixed.findings[0].detail, "Remote process error");
  EXPECT_EQ(mixed.findings[1].pid, 104);
  EXPECT_EQ(mixed.findings[2].detail, "System error");
  EXPECT_EQ(mixed.findings[3].kind, Kind::kStatus);
  EXPECT_EQ(mixed.findings[3].detail, "status ABORT, most others RUNNING");
  EXPECT_EQ(mixed.findings[4].members[0].rank, 7);
  EXPECT_EQ(mixed.findings[5].kind, Kind::kMissing);
  EXPECT_EQ(mixed.findings[5].host, "10.1.0.3");
}

TEST(RasText, ReadsTheWordsOfNccl224) {
  const Report old = parsed(report(
      "    0         1         3         8        24        22   RUNNING  INCOMPLETE,MISMATCH\n",
      "#0-0 (00ab54a98ceb1f0a) INCOMPLETE\n"
      "  Missing communicator data from 2 ranks\n"
      "  The missing ranks: 3,11\n\n",
      "#0-0 (00ab54a98ceb1f0a) MISMATCH\n"
      "  Communicator ranks have different status\n"
      "  22 ranks have status RUNNING\n"
      "  2 ranks have status UNKNOWN\n"
      "  The unknown ranks: 3,11\n"
      "  Communicator ranks have different collective operation counts\n"
      "  21 ranks have launched up to operation 70\n"
      "  Rank 0 has launched up to operation 69 -- GPU 0 managed by process 100 on node "
      "10.1.0.1\n"));
  const Sentences all = sentences(old);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0],
            "Rank 3 of communicator 00ab54a98ceb1f0a does not answer NCCL: crashed, stopped or cut "
            "off.");
  EXPECT_EQ(old.findings[1].members[0].rank, 11);
  EXPECT_EQ(old.findings[2].kind, Kind::kMissing);
  EXPECT_EQ(old.findings[2].count, 2);
  EXPECT_EQ(all[3],
            "Process 100 on 10.1.0.1 (GPU 0, rank 0 of communicator 00ab54a98ceb1f0a) has launched "
            "69 collective operations, others 70.");
}

TEST(RasText, NeverCallsAJobHealthyThatRasDoesNot) {
  const Report later = parsed(report(
      "    0         1         3         8        24        24   RUNNING  MISMATCH\n"
      "    1         2         3         1         3         6   RUNNING  FROZEN\n",
      "DEAD\n  one process, in words that no version says yet\n\n"
      "THERMAL\n  something that no version says yet\n\n",
      "TIMEOUT\n  Encountered 1 communication timeout while gathering communicator data\n\n"));
  EXPECT_EQ(sentences(later),
            (Sentences{"NCCL reports \"DEAD\": see its own text with `ncclras -v`.",
                       "NCCL reports \"THERMAL\": see its own text with `ncclras -v`.",
                       "NCCL reports MISMATCH for group 0 (1 x 24 ranks) and names none of them: "
                       "see its own text with `ncclras -v`.",
                       "NCCL reports FROZEN for group 1 (2 x 3 ranks) and names none of them: see "
                       "its own text with `ncclras -v`."}));
}

TEST(RasText, ReadsLinesThatEndInCarriageReturns) {
  std::string text =
      report("    0         1         3         8        24        24   RUNNING      OK\n", "", "");
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.insert(at, "\r");
  }
  EXPECT_EQ(parsed(text).processes, 24);
}

TEST(RasText, RefusesWhatIsCutOff) {
  const std::string whole =
      report("    0         1         3         8        24        24   RUNNING      OK\n", "", "");
  const auto cut = parse_report(whole.substr(0, whole.find("Warnings")));
  ASSERT_FALSE(cut.has_value());
  EXPECT_EQ(cut.error().message,
            "the report is cut off: it ends at line 21 without a heading \"Warnings\"; ask again");
}

TEST(RasText, RefusesWhatIsNoReport) {
  const auto page = parse_report("HTTP/1.1 400 Bad Request\r\n\r\n");
  ASSERT_FALSE(page.has_value());
  EXPECT_EQ(page.error().message,
            "no report of NCCL's RAS: line 1 is \"HTTP/1.1 400 Bad Request\", not \"NCCL version "
            "...\"");
  EXPECT_FALSE(parse_report("").has_value());
  EXPECT_FALSE(parse_report(" \n\n").has_value());
  EXPECT_FALSE(parse_report(std::string(kMaxReportBytes + 1, ' ')).has_value());
}

TEST(RasText, SurvivesCountsThatCannotBe) {
  const Report lies = parsed(
      report("    0  9223372036854775807  -1  8  99999999999999999999  24  RUNNING  INCOMPLETE\n",
             "DEAD\n"
             "  9223372036854775807 job processes are considered dead\n"
             "  Process -7 on node x managing GPU 0\n\n"
             "#0-0 (00ab54a98ceb1f0a) INCOMPLETE\n"
             "  Missing communicator data from -9223372036854775808 ranks\n"
             "  Rank 18446744073709551616 -- GPU 1 managed by process 1 on node y\n\n",
             ""));
  ASSERT_EQ(lies.findings.size(), 2U);
  EXPECT_EQ(lies.findings[0].count, INT64_MAX);
  EXPECT_EQ(lies.findings[1].kind, Kind::kUnexplained);
}

TEST(RasText, KeepsForeignTextPrintableAndShort) {
  const Report dirty = parsed(report(
      "", "DEAD\n  Process 1 on node \x1b[31m" + std::string(5000, 'h') + " managing GPU 0\n", ""));
  ASSERT_EQ(dirty.findings.size(), 1U);
  const std::string said = sentence(dirty.findings[0]);
  EXPECT_LT(said.size(), 300U);
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
}

TEST(RasText, HoldsABoundedNumberOfFindings) {
  std::string blocks = "#0-0 (00ab54a98ceb1f0a) INCOMPLETE\n";
  for (std::size_t rank = 0; rank < kMaxFindings + 5; ++rank) {
    blocks += "  Rank " + std::to_string(rank) + " -- [process information not found]\n";
  }
  const Report flood = parsed(report("", blocks, ""));
  EXPECT_EQ(flood.findings.size(), kMaxFindings);
  EXPECT_EQ(flood.left_out, 5U);
}

TEST(RasLasting, DropsWhatMovesAndKeepsWhatStays) {
  const auto look = [](int behind, const std::string& other) {
    return parsed(report(
        "    0         1         3         8        24        24   RUNNING  MISMATCH\n", other,
        "#0-0 (00ab54a98ceb1f0a) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  22 ranks have launched up to operation " +
            std::to_string(behind + 2) +
            "\n"
            "  Rank 8 has launched up to operation " +
            std::to_string(behind) +
            " -- GPU 0 managed by process 200 on node 10.1.0.2\n"
            "  Rank 9 has launched up to operation 40 -- GPU 1 managed by process 201 on node "
            "10.1.0.2\n"));
  };
  const std::string dead =
      "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
      "  Process 411 on node 10.1.0.2 managing GPU 5\n\n";
  const Report kept = lasting(look(88, ""), look(95, dead));
  ASSERT_EQ(kept.findings.size(), 2U);
  EXPECT_EQ(kept.findings[0].kind, Kind::kDead);
  EXPECT_EQ(kept.findings[1].members[0].rank, 9);
}

}  // namespace
}  // namespace tapas::agent::ras
