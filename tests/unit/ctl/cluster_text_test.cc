#include "ctl/cluster_text.h"

#include "solver/model/io/catalogue.h"
#include "solver/model/io/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tapas::ctl {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

solver::CatalogueDevice device(const std::string& name) {
  auto found = solver::load_catalogue_device(name);
  EXPECT_TRUE(found) << found.error().message;
  return found.value_or(solver::CatalogueDevice{});
}

TEST(Catalogue, LoadsEveryDeviceWithItsSource) {
  const auto names = solver::catalogue_names("devices");
  ASSERT_TRUE(names) << names.error().message;
  EXPECT_EQ(*names, (std::vector<std::string>{"910B", "A100-40", "A100-80", "A800", "B200", "H100",
                                              "H20", "H200", "H800"}));
  Catalogue all;
  for (const std::string& name : *names) {
    all.emplace_back(name, device(name));
    EXPECT_FALSE(all.back().second.source.empty()) << name;
    NewCluster made;
    made.groups = {{all.back().second, 2}};
    const auto cluster = solver::cluster_from_json(cluster_to_json(made), ".");
    ASSERT_TRUE(cluster) << cluster.error().message;
    EXPECT_EQ(cluster->device_count(), 16U);
  }
  EXPECT_TRUE(has(catalogue_text(all), "353.9 TFLOPS"));
  EXPECT_EQ(catalogue_to_json(all).size(), all.size());
  EXPECT_TRUE(has(catalogue_text({all.front()}), "full mesh"));
}

TEST(Catalogue, NamesWhatItHas) {
  const std::string message = solver::catalogue_file("devices", "A900").error().message;
  EXPECT_TRUE(has(message, "\"A900\"") && has(message, "A800, B200")) << message;
  EXPECT_FALSE(solver::catalogue_file("devices", "../devices/A800"));
  EXPECT_FALSE(solver::catalogue_names("engines"));
}

TEST(Catalogue, IsLookedForWhereTheEnvironmentSays) {
  ASSERT_EQ(::setenv("TAPAS_CATALOGUE", "/nowhere", 1), 0);
  EXPECT_FALSE(solver::catalogue_file("devices", "A800"));
  ASSERT_EQ(::unsetenv("TAPAS_CATALOGUE"), 0);
  EXPECT_TRUE(solver::catalogue_file("devices", "A800"));
}

TEST(NewCluster, NumbersNodesThroughAllKindsAndLeavesSparesLast) {
  NewCluster made;
  made.groups = {{device("A800"), 6}, {device("910B"), 4}};
  made.nodes_per_tor = 2;
  made.tors_per_pod = 2;
  made.spares = 1;
  made.core_oversubscription = 2;
  const json::Value value = cluster_to_json(made);
  const auto cluster = solver::cluster_from_json(value, ".");
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_EQ(cluster->nodes.size(), 10U);
  EXPECT_EQ(cluster->nodes[9].name, "node-009");
  EXPECT_TRUE(cluster->nodes[5].spare && cluster->nodes[9].spare);
  EXPECT_FALSE(cluster->nodes[4].spare || cluster->nodes[6].spare);
  EXPECT_EQ(cluster->device_types.size(), 2U);
  EXPECT_EQ(cluster->core.oversubscription, 2);
  const std::string text = cluster_text(*cluster);
  EXPECT_TRUE(has(text, "10 nodes, 80 devices")) << text;
  EXPECT_TRUE(has(text, "8 x Ascend-910B-64GB")) << text;
  EXPECT_TRUE(has(text, "node-000 to node-001")) << text;
  EXPECT_EQ(cluster_summary(*cluster)["device_count"], 80);
}

TEST(ClusterFile, MayNameADeviceOfTheCatalogue) {
  NewCluster made;
  made.groups = {{device("A800"), 2}};
  json::Value value = cluster_to_json(made);
  value["device_types"][0] = {{"catalogue", "H100"}, {"name", "A800-SXM4-80GB"}};
  const auto cluster = solver::cluster_from_json(value, ".");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->device_types[0].peak_flops, 989e12);
  EXPECT_EQ(cluster->device_types[0].name, "A800-SXM4-80GB");
  value["device_types"][0] = {{"catalogue", "H900"}};
  EXPECT_TRUE(has(solver::cluster_from_json(value, ".").error().message,
                  "cluster.device_types[0].catalogue"));
  value["device_types"][0] = {{"catalogue", "H100"}, {"peak_flops", 1}};
  EXPECT_FALSE(solver::cluster_from_json(value, "."));
}

TEST(ClusterFile, TakesMeasuredCollectives) {
  NewCluster made;
  made.groups = {{device("A800"), 2}};
  json::Value value = cluster_to_json(made);
  const std::vector<solver::MeasuredCollective> table = {
      {solver::Collective::kAllReduce, 1, 8, 1e6, 5e-5},
      {solver::Collective::kReduceScatter, 2, 16, 1e8, 5e-3}};
  value["node_types"][0]["measured_collectives"] = collectives_to_json(table);
  const auto cluster = solver::cluster_from_json(value, ".");
  ASSERT_TRUE(cluster) << cluster.error().message;
  const auto& read = cluster->node_types[0].comm.measured;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[1].op, solver::Collective::kReduceScatter);
  EXPECT_EQ(read[1].devices, 16U);
  EXPECT_EQ(read[0].seconds, 5e-5);
  value["node_types"][0]["measured_collectives"][1]["op"] = "gossip";
  EXPECT_TRUE(has(solver::cluster_from_json(value, ".").error().message,
                  "cluster.node_types[0].measured_collectives[1]"));
}

TEST(ClusterWarnings, SayWhatIsProbablyNotMeant) {
  NewCluster made;
  made.groups = {{device("A800"), 100}, {device("910B"), 2}};
  auto cluster = solver::cluster_from_json(cluster_to_json(made), ".");
  ASSERT_TRUE(cluster);
  const auto warned = [&](const std::string& part) {
    const auto warnings = cluster_warnings(*cluster);
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const std::string& w) { return has(w, part); });
  };
  EXPECT_TRUE(warned("different collective libraries"));
  EXPECT_FALSE(warned("under one ToR")) << "groups never share one";
  EXPECT_FALSE(warned("every node is a spare"));
  cluster->node_types[0].fast_link_bytes_per_s = 1e9;
  EXPECT_TRUE(warned("faster to another node"));
  for (solver::Node& node : cluster->nodes) {
    node.spare = true;
    node.type = 0;
    node.tor = "t";
    node.pod = "p";
  }
  EXPECT_TRUE(warned("every node is a spare"));
  EXPECT_TRUE(warned("is not used"));
  EXPECT_TRUE(warned("under one ToR"));
}

}  // namespace
}  // namespace tapas::ctl
