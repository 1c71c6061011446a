#include "solver/model/io/load.h"
#include "solver/model/io/models.h"
#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace tapas::solver {
namespace {

/// The ```json blocks of docs/formats.md by the schema that they start with.
std::map<std::string, json::Value> documented_examples() {
  std::ifstream file(std::string(TAPAS_SOURCE_DIR) + "/docs/formats.md");
  std::map<std::string, json::Value> examples;
  std::string line;
  while (std::getline(file, line)) {
    if (line != "```json") {
      continue;
    }
    std::string text;
    while (std::getline(file, line) && line != "```") {
      text += line + "\n";
    }
    const auto value = json::parse(text);
    EXPECT_TRUE(value) << value.error().message << "\n" << text;
    if (value && value->contains("schema")) {
      examples.emplace((*value)["schema"].get<std::string>(), *value);
    }
  }
  return examples;
}

TEST(FormatsDocument, ExamplesLoadAsWritten) {
  const auto examples = documented_examples();
  for (const char* schema : {"tapas.graph/1", "tapas.cluster/1", "tapas.job/1", "tapas.plan/1"}) {
    ASSERT_TRUE(examples.contains(schema)) << schema;
  }
  const auto graph = graph_from_json(examples.at("tapas.graph/1"));
  ASSERT_TRUE(graph) << graph.error().message;

  // The job names the graph and the cluster of the other examples.
  const std::string folder = testing::TempDir();
  json::Value job_value = examples.at("tapas.job/1");
  job_value["graph"] = examples.at("tapas.graph/1");
  job_value["cluster"] = examples.at("tapas.cluster/1");
  std::ofstream(folder + "documented.job.json") << json::dump(job_value);
  const auto job = load_job(folder + "documented.job.json");
  ASSERT_TRUE(job) << job.error().message;

  ASSERT_TRUE(examples.contains("tapas.model/1"));
  std::ofstream(folder + "documented.model.json") << json::dump(examples.at("tapas.model/1"));
  const auto model = load_model(folder + "documented.model.json");
  ASSERT_TRUE(model) << model.error().message;
  job_value["graph"] = "documented.model.json";
  job_value["micro_batch_size"] = 2;
  std::ofstream(folder + "documented.job.json") << json::dump(job_value);
  const auto built = load_job(folder + "documented.job.json");
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(built->graph.micro_batch_size, 2U);
  EXPECT_EQ(built->graph.layer_count(), model->shape.layers + 2);

  const auto plan = plan_from_json(examples.at("tapas.plan/1"), *job);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->job, job->name);
  EXPECT_EQ(plan->tp_width.size(), job->graph.layer_count());
}

TEST(FormatsDocument, NamesEveryKeyThatIsWritten) {
  std::ifstream file(std::string(TAPAS_SOURCE_DIR) + "/docs/formats.md");
  std::stringstream text;
  text << file.rdbuf();
  const Job job = tiny_job();
  Plan plan;
  plan.replica_splits = {{0}};
  plan.replica_checkpoint = {{true}};
  json::Value written = plan_to_json(plan, job);
  json::Value model = model_to_json(catalogue_model("deepseek-v3").value());
  for (const auto& value :
       {written, written["predicted"], graph_to_json(job.graph), model, model["experts"],
        model["latent_attention"], graph_to_json(job.graph)["nodes"][0],
        graph_to_json(job.graph)["edges"][0]}) {
    for (const auto& item : value.items()) {
      EXPECT_NE(text.str().find("`" + item.key() + "`"), std::string::npos) << item.key();
    }
  }
}

}  // namespace
}  // namespace tapas::solver
