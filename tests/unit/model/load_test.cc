#include "solver/model/io/load.h"

#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace tapas::solver {
namespace {

namespace fs = std::filesystem;

/// The tiny job as JSON, changed, written to a folder of its own and loaded again.
class JobFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("tapas_load_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::create_directories(folder_);
    value_ = *json::parse_file(example("gpt-tiny-4x2.json"));
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  Result<Job> load() {
    write("job.json", json::dump(value_));
    return load_job(folder_ / "job.json");
  }
  /// The error after the file's name; "" when it loads.
  std::string error() {
    const auto job = load();
    return job ? "" : job.error().message.substr((folder_ / "job.json").string().size() + 2);
  }
  json::Value& cluster() { return value_["cluster"]; }

  fs::path folder_;
  json::Value value_;
};

TEST(LoadJob, ReadsTheLargeExample) {
  const auto job = load_job(example("gpt3-175b-a800-1024.json"));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->name, "gpt3-175b");
  EXPECT_EQ(job->graph.layer_count(), 98U);
  EXPECT_EQ(job->total_microbatches(), 1536U);
  EXPECT_EQ(job->search.max_stages, 32U);
  const Cluster& cluster = job->cluster;
  EXPECT_EQ(cluster.device_count(), 1024U);
  EXPECT_EQ(cluster.nodes.size(), 128U);
  EXPECT_EQ(cluster.nodes.front().name, "node-000");
  EXPECT_EQ(cluster.nodes.back().name, "node-127");
  EXPECT_EQ(cluster.tier_between(NodeId(0), NodeId(15)).name, "tor");
  EXPECT_EQ(cluster.tier_between(NodeId(15), NodeId(16)).name, "pod");
  EXPECT_EQ(cluster.tier_between(NodeId(63), NodeId(64)).name, "core");
  const NodeType& type = cluster.node_types.front();  // from the topology file
  EXPECT_EQ(type.devices, 8U);
  EXPECT_EQ(type.fast_link_bytes_per_s, 160e9);
  EXPECT_EQ(type.nics, 4U);
  EXPECT_EQ(type.nic_bytes_per_s, 24e9) << "what NCCL gets of 200 Gbit/s";
}

TEST_F(JobFile, TakesGraphAndClusterFromFilesBesideIt) {
  const Job whole = tiny_job();
  fs::create_directories(folder_ / "parts");
  write("parts/graph.json", json::dump(graph_to_json(whole.graph)));
  write("parts/cluster.json", json::dump(cluster()));
  value_["graph"] = "parts/graph.json";
  value_["cluster"] = "parts/cluster.json";
  const auto job = load();
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(json::dump(graph_to_json(job->graph)), json::dump(graph_to_json(whole.graph)));
  EXPECT_EQ(job->cluster.device_count(), 8U);
}

TEST_F(JobFile, LooksForTopoFilesBesideTheClusterFile) {
  fs::create_directories(folder_ / "parts");
  fs::copy(example("topo-a800-8gpu-roce.xml"), folder_ / "parts" / "topo.xml");
  cluster()["node_types"][0] = {
      {"name", "two-devices"}, {"device_type", "A800-SXM4-80GB"}, {"topo_file", "topo.xml"}};
  write("parts/cluster.json", json::dump(cluster()));
  value_["cluster"] = "parts/cluster.json";
  const auto job = load();
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->cluster.device_count(), 32U);

  fs::remove(folder_ / "parts" / "topo.xml");
  EXPECT_NE(
      error().find("topo_file: " + (folder_ / "parts" / "topo.xml").string() + ": cannot open"),
      std::string::npos)
      << error();
}

TEST_F(JobFile, AppliesDefaultsAndEverySetting) {
  Job job = *load();
  EXPECT_EQ(job.zero_stage, 1U);
  EXPECT_EQ(job.optimizer_bytes_per_param, 12);
  EXPECT_TRUE(job.capabilities.replica_splits);
  EXPECT_TRUE(job.capabilities.placement);
  EXPECT_FALSE(job.capabilities.narrower_groups);
  value_["micro_batch_size"] = 2;
  value_["dtype"] = "fp32";
  value_["zero_stage"] = 0;
  value_["schedule"] = "gpipe";
  value_["optimizer_bytes_per_param"] = 8;
  value_["limits"] = {{"device_memory_bytes", 40e9}, {"step_time_s", 20}};
  value_["capabilities"] = {
      {"replica_splits", false}, {"placement", false}, {"narrower_groups", true}};
  value_["search"] = {
      {"model", "document"}, {"anneal", true}, {"weights", {{"memory_per_byte", 2}}}};
  job = *load();
  EXPECT_EQ(job.graph.micro_batch_size, 2U);
  EXPECT_EQ(job.total_microbatches(), 8U);
  EXPECT_EQ(job.bytes_per_param, 4);
  EXPECT_EQ(job.zero_stage, 0U);
  EXPECT_EQ(job.schedule, Schedule::kGpipe);
  EXPECT_EQ(job.optimizer_bytes_per_param, 8);
  EXPECT_EQ(job.limits.device_memory_bytes, 40e9);
  EXPECT_EQ(job.limits.step_time_s, 20);
  EXPECT_EQ(job.limits.recompute_ratio, 0.15);
  EXPECT_FALSE(job.capabilities.replica_splits);
  EXPECT_FALSE(job.capabilities.placement);
  EXPECT_TRUE(job.capabilities.narrower_groups);
  EXPECT_TRUE(job.capabilities.microbatch_counts);
  EXPECT_EQ(job.search.model, CostModelKind::kDocument);
  EXPECT_TRUE(job.search.anneal);
  EXPECT_EQ(job.search.weights.memory_per_byte, 2);
  EXPECT_EQ(job.search.weights.stage_time_per_s, 1);
}

TEST_F(JobFile, ReadsSingleNodesAndSpares) {
  cluster()["nodes"] = *json::parse(R"([
    {"name": "x", "type": "two-devices", "tor": "t", "pod": "p"},
    {"name_prefix": "n", "first": 9, "digits": 2, "count": 3, "nodes_per_tor": 2, "tors_per_pod": 1,
     "type": "two-devices"},
    {"name_prefix": "s", "count": 1, "type": "two-devices", "spare": true}])");
  const auto job = load();
  ASSERT_TRUE(job) << job.error().message;
  const auto& nodes = job->cluster.nodes;
  ASSERT_EQ(nodes.size(), 5U);
  EXPECT_EQ(nodes[0].name + "/" + nodes[0].tor + "/" + nodes[0].pod, "x/t/p");
  EXPECT_EQ(nodes[1].name + "/" + nodes[1].tor + "/" + nodes[1].pod, "n09/tor0/pod0");
  EXPECT_EQ(nodes[3].name + "/" + nodes[3].tor + "/" + nodes[3].pod, "n11/tor1/pod1");
  EXPECT_EQ(nodes[4].name + "/" + nodes[4].tor + "/" + nodes[4].pod, "s0/tor2/pod2");
  EXPECT_TRUE(nodes[4].spare);
}

TEST_F(JobFile, NamesTheKeyThatIsWrong) {
  struct Case {
    std::function<void(json::Value&)> change;
    std::string error;
  };
  const Case cases[] = {
      {[](auto& job) { job["globalbatch"] = 3; },
       "job: unknown key \"globalbatch\"; did you mean \"global_batch\"?"},
      {[](auto& job) { job.erase("global_batch"); }, "job: missing key \"global_batch\""},
      {[](auto& job) { job["schema"] = "tapas.job/9"; },
       "job.schema is \"tapas.job/9\"; this version reads \"tapas.job/1\""},
      {[](auto& job) { job["search"]["tp_width"] = 3; },
       "job.search: unknown key \"tp_width\"; did you mean \"tp_widths\"?"},
      {[](auto& job) { job["search"]["tp_widths"] = {0}; },
       "job.search.tp_widths must hold integers from 1 to 1024"},
      {[](auto& job) { job["graph"]["heads"] = 7; },
       "model gpt-tiny: hidden_size 1024 is not a multiple of heads 7; give head_size when heads "
       "are "
       "of another size"},
      {[](auto& job) { job["graph"] = 7; }, "job.graph must be an object or the name of a file"},
      {[](auto& job) { job.erase("cluster"); }, "job needs both \"graph\" and \"cluster\""},
      {[](auto& job) { job["cluster"].erase("schema"); },
       "job.cluster: missing key \"schema\"; it must be \"tapas.cluster/1\""},
      {[](auto& job) { job["cluster"]["device_types"][0]["peak_flop"] = 1; },
       "job.cluster.device_types[0]: unknown key \"peak_flop\"; did you mean \"peak_flops\"?"},
      {[](auto& job) { job["cluster"]["node_types"][0]["device_type"] = "H100"; },
       "job.cluster.node_types[0].device_type: \"H100\" is not defined"},
      {[](auto& job) { job["cluster"]["node_types"][0]["devices"] = 1e9; },
       "job.cluster.node_types[0].devices must be an integer from 1 to 1024, not 1000000000.0"},
      {[](auto& job) { job["cluster"]["nodes"][0]["count"] = 1000000000; },
       "job.cluster.nodes[0].count must be an integer from 1 to 100000, not 1000000000"},
      {[](auto& job) { job["cluster"]["nodes"].push_back(job["cluster"]["nodes"][0]); },
       "node node-0 is listed twice"},
      {[](auto& job) { job["cluster"]["fabric"]["tor"].erase("latency_s"); },
       "job.cluster.fabric.tor: missing key \"latency_s\""},
      {[](auto& job) { job["cluster"]["fabric"]["spine"] = 1; },
       "job.cluster.fabric: unknown key \"spine\"; known: tor, pod, core"},
      {[](auto& job) {
         job["limits"] = {{"recompute_ratio", -1}};
       },
       "job.limits.recompute_ratio must be a number from 0 to 1, not -1"},
      {[](auto& job) { job["micro_batch_size"] = 3; },
       "job gpt-tiny: global_batch 16 is not a positive multiple of micro_batch_size 3"},
  };
  const json::Value good = value_;
  for (const Case& c : cases) {
    value_ = good;
    c.change(value_);
    EXPECT_EQ(error(), c.error);
  }
  value_ = good;
  EXPECT_EQ(error(), "");
}

TEST_F(JobFile, RefusesAGraphForAnotherMicrobatch) {
  value_["graph"] = graph_to_json(tiny_job().graph);
  EXPECT_EQ(error(), "");
  value_["micro_batch_size"] = 2;
  EXPECT_NE(error().find("the numbers of graph gpt-tiny are for 1"), std::string::npos) << error();
}

TEST_F(JobFile, NamesLineAndColumnOfBrokenText) {
  write("job.json", "{\"schema\": \"tapas.job/1\",\n \"name\": \"a\",\n \"name\": \"b\"}");
  const std::string path = folder_ / "job.json";
  EXPECT_EQ(load_job(path).error().message, path + ": line 3, column 2: duplicate key \"name\"");
  write("job.json", "{\"global_batch\": 1e999}");
  EXPECT_NE(load_job(path).error().message.find("line 1"), std::string::npos);
  value_["cluster"] = "missing.json";
  const std::string missing = folder_ / "missing.json";
  EXPECT_EQ(error(), "job.cluster: " + missing + ": cannot open: No such file or directory");
}

TEST(GraphJson, RoundTripsExactly) {
  const Graph graph = tiny_job().graph;
  const json::Value value = graph_to_json(graph);
  const auto back = graph_from_json(*json::parse(json::dump(value)));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(json::dump(graph_to_json(*back)), json::dump(value));
  EXPECT_EQ(back->nodes.size(), graph.nodes.size());
  EXPECT_EQ(back->hidden_size, graph.hidden_size);
}

TEST(GraphJson, NamesTheNodeThatIsWrong) {
  json::Value value = graph_to_json(tiny_job().graph);
  value["nodes"][2]["kind"] = "linear";
  EXPECT_EQ(graph_from_json(value).error().message.rfind(
                "graph.nodes[2].kind: unknown operator kind \"linear\"; allowed: ", 0),
            0U);
  value = graph_to_json(tiny_job().graph);
  value["nodes"][0]["act_byte"] = 1;
  EXPECT_EQ(graph_from_json(value).error().message,
            "graph.nodes[0]: unknown key \"act_byte\"; did you mean \"act_bytes\"?");
  value = graph_to_json(tiny_job().graph);
  value["edges"][0]["bytes"] = -1;
  EXPECT_NE(graph_from_json(value).error().message.find("graph.edges[0].bytes"), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
