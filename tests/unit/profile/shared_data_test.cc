// The published profiles themselves, where a checkout has them beside it.
#include "solver/profile/profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tapas::solver::profile {
namespace {

namespace fs = std::filesystem;

class PublishedProfiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) {
      GTEST_SKIP() << "skipped: no " << folder_;
    }
  }
  [[nodiscard]] std::vector<File> load(const std::vector<std::string>& names) const {
    std::vector<File> files;
    for (const std::string& name : names) {
      auto file = load_file((folder_ / name).string());
      EXPECT_TRUE(file) << file.error().message;
      files.push_back(file.value_or(File{}));
    }
    return files;
  }
  [[nodiscard]] Profile get(Layout layout, const std::vector<std::string>& names,
                            const Options& options) const {
    auto profile = read(layout, load(names), options);
    EXPECT_TRUE(profile) << profile.error().message;
    return profile.value_or(Profile{});
  }

  fs::path folder_ = fs::path(TAPAS_SOURCE_DIR) / ".." / "shared" / "data" / "profiles";
};

double params_of(const Graph& graph, double bytes_per_element) {
  double bytes = 0;
  for (const OpNode& op : graph.nodes) {
    bytes += op.param_bytes;
  }
  return bytes / bytes_per_element;
}

TEST_F(PublishedProfiles, ReadAceso) {
  Options options;
  options.device = "V100";
  options.layers = 40;
  const auto big = get(Layout::kAceso, {"aceso/gpt_13B_v100_op_profile.csv"}, options);
  EXPECT_EQ(big.graph.layer_count(), 2U + 5 * 40);
  EXPECT_NEAR(params_of(big.graph, 2), 13.1e9, 0.3e9);
  for (const std::uint32_t width : {1U, 2U, 4U, 8U}) {
    EXPECT_TRUE(check_measured(big.graph, "V100", width)) << width;
  }
  options.layers = 32;
  const auto small = get(Layout::kAceso, {"aceso/gpt_6_7B_v100_op_profile.csv"}, options);
  EXPECT_NEAR(params_of(small.graph, 2), 6.9e9, 0.2e9);
}

TEST_F(PublishedProfiles, ReadGalvatron) {
  Options options;
  options.device = "A100";
  options.layers = 32;
  const auto profile = get(Layout::kGalvatron,
                           {"galvatron/llama7b_computation_bf16_h4096_seq2048.json",
                            "galvatron/llama7b_memory_bf16_h4096_seq2048.json"},
                           options);
  EXPECT_EQ(profile.graph.layer_count(), 34U);
  EXPECT_NEAR(params_of(profile.graph, 2), 6.74e9, 0.03e9);
  EXPECT_TRUE(check_measured(profile.graph, "A100", 8));
  const auto newer = get(Layout::kGalvatron,
                         {"galvatron/computation_profiling_bf16_llama2-7b_all.json",
                          "galvatron/memory_profiling_bf16_llama2-7b_all.json"},
                         [&] {
                           Options with = options;
                           with.hidden_size = 4096;
                           with.sequence_length = 2048;
                           return with;
                         }());
  EXPECT_TRUE(check_measured(newer.graph, "A100", 1));
}

TEST_F(PublishedProfiles, ReadEveryPipedreamGraph) {
  Options options;
  options.device = "V100";
  for (const auto& [name, least] :
       std::vector<std::pair<std::string, std::uint32_t>>{{"vgg16", 30},
                                                          {"resnet50", 100},
                                                          {"resnet101", 200},
                                                          {"densenet121", 200},
                                                          {"gnmt", 10},
                                                          {"gnmt_large", 20}}) {
    const auto profile = get(Layout::kPipedream, {"pipedream/" + name + "_graph.txt"}, options);
    EXPECT_GE(profile.graph.layer_count(), least) << name;
    EXPECT_LE(profile.graph.layer_count(), profile.graph.nodes.size());
  }
}

TEST_F(PublishedProfiles, ReadEveryPiperGraph) {
  Options options;
  options.device = "A100";
  const auto bert = get(Layout::kPiper, {"piper/bert32a100.json"}, options);
  EXPECT_EQ(bert.graph.nodes.size(), 37U);
  EXPECT_TRUE(check_measured(bert.graph, "A100", 8));
  for (const char* name : {"piper/gnmt.json", "piper/resnet.json"}) {
    const auto profile = get(Layout::kPiper, {name}, options);
    EXPECT_TRUE(check_measured(profile.graph, "A100", 1)) << name;
    EXPECT_FALSE(check_measured(profile.graph, "A100", 2)) << name;
  }
}

TEST_F(PublishedProfiles, ReadEverySailorProfile) {
  for (const auto& entry : fs::directory_iterator(folder_ / "sailor")) {
    const std::string name = entry.path().filename();
    if (name.find("_profile.json") == std::string::npos) {
      continue;
    }
    if (name == "GPT-Neo-2.7_GH-96_profile.json") {  // another model's times under this name
      const auto refused =
          read(Layout::kSailor, load({"sailor/" + name, "sailor/llm_info.json"}), {});
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find("26 layers where the model has 34"),
                std::string::npos);
      continue;
    }
    const auto profile = get(Layout::kSailor, {"sailor/" + name, "sailor/llm_info.json"}, {});
    EXPECT_GT(profile.graph.layer_count(), 30U) << name;
  }
  const auto mixed = get(Layout::kSailor,
                         {"sailor/GPT-Neo-2.7_A100-40_profile.json",
                          "sailor/GPT-Neo-2.7_V100-16_profile.json", "sailor/llm_info.json"},
                         {});
  EXPECT_TRUE(check_measured(mixed.graph, "A100-40", 4));
  EXPECT_TRUE(check_measured(mixed.graph, "V100-16", 4));
}

TEST_F(PublishedProfiles, ReadEveryTableOfCollectives) {
  Options options;
  options.device = "A100-40";
  const std::vector<std::pair<Layout, std::vector<std::string>>> tables = {
      {Layout::kAceso, {"aceso/v100_collectives.csv"}},
      {Layout::kGalvatron,
       {"galvatron/hw_allreduce_bandwidth_1nodes_8gpus_per_node.json",
        "galvatron/hw_allreduce_bandwidth_2nodes_8gpus_per_node.json",
        "galvatron/hw_sp_time_1nodes_8gpus_per_node.json"}},
      {Layout::kNnscaler,
       {"nnscaler/mi200_comm_intra_2.json", "nnscaler/mi200_comm_intra_4.json",
        "nnscaler/mi200_comm_intra_8.json", "nnscaler/mi200_comm_intra_16.json"}},
      {Layout::kSailor, {"sailor/intra_node_bandwidths.json"}},
      {Layout::kVtrain,
       {"vtrain/a100_allreduce_gpu2.csv", "vtrain/a100_allreduce_gpu4.csv",
        "vtrain/a100_allreduce_gpu8.csv"}}};
  for (const auto& [layout, names] : tables) {
    const auto table = read_collectives(layout, load(names), options);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_GT(table->size(), 10U) << to_string(layout);
    for (const MeasuredCollective& one : *table) {
      EXPECT_GT(one.seconds, 0);
      EXPECT_GE(one.devices, 2U);
    }
  }
}

}  // namespace
}  // namespace tapas::solver::profile
