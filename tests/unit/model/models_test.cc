#include "solver/model/io/models.h"

#include "solver/model/io/catalogue.h"
#include "solver/model/io/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

namespace tapas::solver {
namespace {

/// Billions of parameters, as published.
struct Published {
  double total;
  double active;
  double within;  ///< relative: half a unit of the last digit given
};

TEST(Models, HaveThePublishedNumbersOfParameters) {
  const std::map<std::string, Published> published = {
      {"gpt3-175b", {174.6, 174.6, 5e-4}},       {"llama3-8b", {8.03, 8.03, 7e-4}},
      {"llama3-70b", {70.55, 70.55, 1e-4}},      {"llama3-405b", {405.85, 405.85, 2e-5}},
      {"mixtral-8x7b", {46.7, 12.9, 3e-3}},      {"deepseek-v3", {671, 37, 2e-2}},
      {"deepseek-v2", {236, 21, 3e-2}},          {"megatron-1.7b", {1.7, 1.7, 3e-2}},
      {"megatron-3.6b", {3.6, 3.6, 2e-2}},       {"megatron-7.5b", {7.5, 7.5, 7e-3}},
      {"megatron-18.4b", {18.4, 18.4, 3e-3}},    {"megatron-22b", {22, 22, 3e-2}},
      {"megatron-39.1b", {39.1, 39.1, 2e-3}},    {"megatron-76.1b", {76.1, 76.1, 1e-3}},
      {"megatron-145.6b", {145.6, 145.6, 1e-3}}, {"megatron-310.1b", {310.1, 310.1, 1e-3}},
      {"megatron-529.6b", {529.6, 529.6, 1e-3}}, {"megatron-1008b", {1008, 1008, 1e-3}},
  };
  const auto names = catalogue_names("models");
  ASSERT_TRUE(names) << names.error().message;
  for (const auto& [name, expected] : published) {
    EXPECT_TRUE(std::binary_search(names->begin(), names->end(), name)) << name;
    const auto model = catalogue_model(name);
    ASSERT_TRUE(model) << model.error().message;
    const ParameterCount count = count_parameters(model->shape);
    EXPECT_NEAR(count.total / 1e9 / expected.total, 1, expected.within) << name;
    EXPECT_NEAR(count.active / 1e9 / expected.active, 1, expected.within) << name;
  }
}

TEST(Models, AllLoadBuildAndNameTheirSource) {
  const auto names = catalogue_names("models");
  ASSERT_TRUE(names) << names.error().message;
  for (const std::string& name : *names) {
    const auto model = catalogue_model(name);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->shape.name, name);
    EXPECT_FALSE(model->source.empty()) << name;
    const auto graph = build_decoder(model->shape);
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_TRUE(validate(*graph)) << name;
    EXPECT_EQ(graph->layer_count(), model->shape.layers + 2);
  }
}

TEST(Models, AreReadBackAsWritten) {
  const std::string path = ::testing::TempDir() + "models_test.json";
  for (const char* name : {"gpt3-175b", "mixtral-8x7b", "deepseek-v3"}) {
    const auto model = catalogue_model(name);
    ASSERT_TRUE(model) << model.error().message;
    const json::Value written = model_to_json(*model);
    std::ofstream(path) << json::dump(written);
    const auto again = load_model(path);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(model_to_json(*again), written);
    EXPECT_EQ(graph_to_json(build_decoder(again->shape).value()),
              graph_to_json(build_decoder(model->shape).value()));
  }
  (void)std::remove(path.c_str());
}

TEST(Models, NameTheKnownOnesWhenAskedForAnother) {
  const auto model = catalogue_model("llama9");
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("llama3-8b"), std::string::npos) << model.error().message;
}

std::string problem(const std::string& text) {
  const std::string path = ::testing::TempDir() + "models_test.json";
  std::ofstream(path) << text;
  const auto model = load_model(path);
  (void)std::remove(path.c_str());
  return model ? "" : model.error().message;
}

TEST(Models, SayWhatIsWrongInAFile) {
  const std::string head =
      R"({"schema":"tapas.model/1","name":"m","layers":2,"hidden_size":64,"heads":4,)"
      R"("sequence_length":32,"vocabulary":100)";
  EXPECT_EQ(problem(head + "}"), "");
  EXPECT_NE(problem(head + R"(,"kv_head":2})").find("kv_heads"), std::string::npos);
  EXPECT_NE(problem(head + R"(,"attention":"fast"})").find("recomputed"), std::string::npos);
  EXPECT_NE(problem(head + R"(,"kv_heads":3})").find("not a multiple"), std::string::npos);
  EXPECT_NE(problem(head + R"(,"experts":{"count":4,"ffn_size":64}})").find("per_token"),
            std::string::npos);
  EXPECT_NE(problem(R"({"schema":"tapas.model/1","name":"m"})").find("layers"), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
