#include "solver/profile/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tapas::solver::profile {
namespace {

std::vector<MeasuredCollective> table_of(Layout layout, const File& file,
                                         const Options& options = {}) {
  const auto table = read_collectives(layout, {file}, options);
  EXPECT_TRUE(table) << table.error().message;
  return table.value_or(std::vector<MeasuredCollective>{});
}

std::string error_of(Layout layout, const File& file, const Options& options = {}) {
  const auto table = read_collectives(layout, {file}, options);
  return table ? "" : table.error().message;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(AcesoCollectives, CountWhatAllGatherLeavesOnEachDevice) {
  const std::string header = "collective,num_gpus,data_size_MB,time_ms\n";
  const auto table =
      table_of(Layout::kAceso, {"c.csv", header + "all_gather,4,2,1.5\nall_to_all,4,2,9\n"
                                                  "all_reduce,2,1,0.25\n"});
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table[0].op, Collective::kAllGather);
  EXPECT_EQ(table[0].devices, 4U);
  EXPECT_DOUBLE_EQ(table[0].bytes, 8 * 1048576.0);
  EXPECT_DOUBLE_EQ(table[0].seconds, 1.5e-3);
  EXPECT_EQ(table[1].op, Collective::kAllReduce);
  EXPECT_TRUE(has(error_of(Layout::kAceso, {"c.csv", header + "gossip,4,2,1\n"}), "c.csv:2"));
  EXPECT_TRUE(has(error_of(Layout::kAceso, {"c.csv", header + "all_gather,1,2,1\n"}), "num_gpus"));
}

TEST(GalvatronCollectives, ReadRatesAndTimes) {
  const auto rates = table_of(Layout::kGalvatron,
                              {"hw_allreduce_bandwidth_2nodes_8gpus_per_node.json",
                               R"({"allreduce_size_16_consec_1": 50, "allreduce_size_8_consec_0": 1,
                                   "allreduce_size_8_consec_1": 100})"});
  ASSERT_EQ(rates.size(), 4U);
  EXPECT_EQ(rates[0].nodes, 2U);
  EXPECT_DOUBLE_EQ(rates[0].seconds, 2 * 15 / 16.0 * 1e6 / 50e9);
  EXPECT_EQ(rates[3].nodes, 1U);
  EXPECT_DOUBLE_EQ(rates[3].bytes, 1e9);
  const auto times = table_of(
      Layout::kGalvatron, {"hw_sp_time_1nodes_8gpus_per_node.json",
                           R"({"allreduce_size_4_16MB_time": 0.5, "all2all_size_4_1MB_time": 1})"});
  ASSERT_EQ(times.size(), 1U);
  EXPECT_DOUBLE_EQ(times[0].bytes, 16 * 1048576.0);
  EXPECT_DOUBLE_EQ(times[0].seconds, 0.5e-3);
  EXPECT_TRUE(has(error_of(Layout::kGalvatron, {"a.json", R"({"allreduce_size_4_consec_1": 0})"}),
                  "a rate of 0"));
  EXPECT_TRUE(has(error_of(Layout::kGalvatron, {"a.json", "{}"}), "no key like"));
}

TEST(NnscalerCollectives, TakeTheDevicesFromTheName) {
  const std::string text =
      R"({"all reduce": [[1, 2], [0.1, 0.2]], "reduce scatter": [[1], [0.05]],
          "all to all": [[1], [9]]})";
  const auto table = table_of(Layout::kNnscaler, {"x/mi200_comm_intra_8.json", text});
  ASSERT_EQ(table.size(), 3U);
  EXPECT_EQ(table[0].devices, 8U);
  EXPECT_DOUBLE_EQ(table[1].seconds, 0.2);
  EXPECT_EQ(table[2].op, Collective::kReduceScatter);
  EXPECT_TRUE(has(error_of(Layout::kNnscaler, {"comm.json", text}), "number of devices"));
  EXPECT_TRUE(has(error_of(Layout::kNnscaler, {"c_8.json", R"({"all reduce": [[1], []]})"}),
                  "equal length"));
  EXPECT_TRUE(has(error_of(Layout::kNnscaler, {"c_8.json", R"({"gossip": [[], []]})"}),
                  "unknown collective"));
}

TEST(SailorCollectives, SampleTheFitOfOneDevice) {
  Options options;
  options.device = "V100-16";
  const File file{"intra.json", R"({"V100-16": {"2": [[0, 1, 10], 12e9]}, "A": {"2": [[1], 1]}})"};
  const auto table = table_of(Layout::kSailor, file, options);
  ASSERT_EQ(table.size(), 11U);
  EXPECT_DOUBLE_EQ(table[1].bytes, 2e6);
  EXPECT_DOUBLE_EQ(table[1].seconds, 2e6 / 11e9);
  EXPECT_DOUBLE_EQ(table[10].seconds, 1024e6 / 12e9) << "never above what was reached";
  options.device = "H100";
  EXPECT_TRUE(has(error_of(Layout::kSailor, file, options), "the file has V100-16, A"));
  options.device = "A";
  EXPECT_TRUE(
      has(error_of(Layout::kSailor, {"i.json", R"({"A": {"2": [[], 1]}})"}, options), "A.2") ||
      has(error_of(Layout::kSailor, {"i.json", R"({"A": {"2": [[], 1]}})"}, options),
          "expected [[coefficients]"));
}

TEST(VtrainCollectives, TakeOutOfPlaceTimes) {
  const std::string header = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n";
  const auto table = table_of(
      Layout::kVtrain, {"a100_allreduce_gpu4.csv", header + "1048576,262144,float,44210,2,1,3\n"});
  ASSERT_EQ(table.size(), 1U);
  EXPECT_EQ(table[0].devices, 4U);
  EXPECT_DOUBLE_EQ(table[0].seconds, 44210e-9);
  EXPECT_TRUE(has(error_of(Layout::kVtrain, {"allreduce.csv", header}), "number of devices"));
}

}  // namespace
}  // namespace tapas::solver::profile
