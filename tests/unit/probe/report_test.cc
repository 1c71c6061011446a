#include "agent/probe/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace tapas::agent::probe {
namespace {

/// Of a link of 10 Gbit/s, of which a tenth is tried.
Load tenth() {
  Load load;
  load.nominal_bytes_per_s = 1.25e9;
  load.bytes_per_s = 1.25e8;
  load.seconds = 2;
  load.bytes = 1U << 30U;
  return load;
}

Transfer carried(double bytes_per_s) {
  Transfer transfer;
  transfer.sent = {1000, 3, 0.1};
  transfer.received = {250'000'000, 2, 1, bytes_per_s, 0.2};
  return transfer;
}

TEST(ProbeVerdict, IsHealthyWhenWhatWasTriedArrived) {
  EXPECT_EQ(judge(tenth(), carried(1.25e8)), Verdict::kHealthy);
  EXPECT_EQ(judge(tenth(), carried(1.13e8)), Verdict::kHealthy);
  EXPECT_EQ(judge(tenth(), carried(1.12e8)), Verdict::kSlow);
}

TEST(ProbeVerdict, IsUnclearWhenAnEndWasBusyItself) {
  Transfer sender = carried(5e7);
  sender.sent.busy_ratio = 0.6;
  EXPECT_EQ(judge(tenth(), sender), Verdict::kUnclear);
  Transfer receiver = carried(5e7);
  receiver.received.busy_ratio = 0.6;
  EXPECT_EQ(judge(tenth(), receiver), Verdict::kUnclear);
  Transfer quick = carried(1.25e8);
  quick.sent.busy_ratio = 1;
  EXPECT_EQ(judge(tenth(), quick), Verdict::kHealthy);
}

TEST(ProbeVerdict, IsUnclearWhenItLastedForAMomentOnly) {
  Transfer brief = carried(1.25e8);
  brief.received.measured_s = 0.01;
  EXPECT_EQ(judge(tenth(), brief), Verdict::kUnclear);
}

TEST(ProbeVerdict, HoldsAFullProbeAgainstTheNominalSpeed) {
  Load full = tenth();
  full.bytes_per_s.reset();
  EXPECT_EQ(judge(full, carried(1.17e9)), Verdict::kHealthy);
  EXPECT_EQ(judge(full, carried(1.25e8)), Verdict::kSlow);
  full.nominal_bytes_per_s.reset();
  EXPECT_EQ(judge(full, carried(1.25e8)), Verdict::kMeasured);
}

TEST(ProbeVerdict, HoldsAnOrderOverTheNominalSpeedAgainstTheNominalSpeed) {
  Load over = tenth();
  over.bytes_per_s = 1e10;
  EXPECT_EQ(judge(over, carried(1.17e9)), Verdict::kHealthy);
}

Report one_slow() {
  Report report;
  report.peer = {"n17", "28100"};
  report.interface = "ens1";
  report.load = tenth();
  report.rtt_s = 34e-6;
  report.to = carried(1.24e8);
  report.from = carried(2.4e7);
  return report;
}

TEST(ProbeReport, SaysBothDirections) {
  EXPECT_EQ(to_text(one_slow()),
            "n17:28100 over ens1: nominal 10.00 Gbit/s, tried 1.00 Gbit/s, 0.1 of it; 2.0 s and "
            "1073741824 bytes at most each way; round trip 34 us\n"
            "to    healthy: 992.0 Mbit/s of the 1.00 Gbit/s tried; 3 of 1000 segments sent again\n"
            "from  slow: 192.0 Mbit/s of the 1.00 Gbit/s tried, 0.019 of nominal; 3 of 1000 "
            "segments sent again\n");
  EXPECT_FALSE(well(one_slow()));
}

TEST(ProbeReport, IsWellWhenBothDirectionsAre) {
  Report report = one_slow();
  report.from = report.to;
  EXPECT_TRUE(well(report));
  report.load.bytes_per_s.reset();
  report.load.nominal_bytes_per_s.reset();
  EXPECT_TRUE(well(report));
}

TEST(ProbeReport, SaysInJsonWhatIsUnknown) {
  const json::Value value = to_json(one_slow());
  EXPECT_EQ(value["schema"], "tapas.probe/1");
  EXPECT_EQ(value["directions"][1]["direction"], "from");
  EXPECT_EQ(value["directions"][1]["verdict"], "slow");
  EXPECT_NEAR(value["directions"][1]["tried_ratio"], 0.192, 1e-9);
  EXPECT_NEAR(value["directions"][1]["nominal_ratio"], 0.0192, 1e-9);
  EXPECT_EQ(value["directions"][1]["retransmits"], 3);

  Report unknown = one_slow();
  unknown.load.nominal_bytes_per_s.reset();
  unknown.interface.clear();
  EXPECT_TRUE(to_json(unknown)["nominal_bytes_per_s"].is_null());
  EXPECT_TRUE(to_json(unknown)["interface"].is_null());
  EXPECT_TRUE(to_json(unknown)["directions"][0]["nominal_ratio"].is_null());
  EXPECT_FALSE(to_json(unknown)["directions"][0]["tried_ratio"].is_null());
}

TEST(ProbeReport, HasEveryFieldInTheDocuments) {
  std::ifstream in(std::string(TAPAS_SOURCE_DIR) + "/docs/agent.md");
  std::string document{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = document.find("### `tapas.probe/1`");
  ASSERT_NE(begin, std::string::npos);
  document = document.substr(begin);
  const auto documented = [&](const json::Value& object) {
    for (const auto& [key, value] : object.items()) {
      EXPECT_NE(document.find("`" + key + "`"), std::string::npos) << key;
    }
  };
  const json::Value value = to_json(one_slow());
  documented(value);
  documented(value["directions"][0]);
}

TEST(ProbeReport, WritesSpeedsAsOperatorsSayThem) {
  EXPECT_EQ(rate_text(1.25e10), "100.00 Gbit/s");
  EXPECT_EQ(rate_text(2.5e7), "200.0 Mbit/s");
  EXPECT_EQ(rate_text(1e3), "8.0 kbit/s");
}

}  // namespace
}  // namespace tapas::agent::probe
