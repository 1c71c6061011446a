#include "solver/topo/search.h"

#include "nccl_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace tapas::solver {
namespace {

std::vector<std::uint32_t> all_gpus(const NcclTopo& topo) {
  std::vector<std::uint32_t> gpus(topo.gpus.size());
  std::iota(gpus.begin(), gpus.end(), 0U);
  return gpus;
}

/// The same faults that the answers were computed for.
void degrade(NcclTopo& topo, const std::string& variant) {
  TopoGpu& gpu = topo.gpus[3];
  const auto nic = std::find_if(topo.nics.begin(), topo.nics.end(),
                                [](const TopoNic& one) { return one.dev == 2; });
  if (variant == "nic-half") {
    nic->bytes_per_s /= 2;
  } else if (variant == "nic-dead") {
    topo.devices[nic->device].kind = TopoKind::kOther;
    topo.nics.erase(nic);
  } else if (variant == "nvlink-11of12-gpu3") {
    gpu.links[0].count -= 1;
  } else if (variant == "nvlink-6of12-gpu3") {
    for (TopoNvlink& link : gpu.links) {
      link.count = 1;
    }
  } else if (variant == "nvlink-0-gpu3") {
    gpu.links.clear();
  } else if (variant == "nic-pcie-x4") {
    topo.devices[nic->device].bytes_per_s /= 4;
  } else if (variant == "gpu3-pcie-x4") {
    topo.devices[gpu.device].bytes_per_s /= 4;
  } else {
    ASSERT_EQ(variant, "");
  }
}

void expect_paths(const TopoSystem& system, const json::Value& rows, NodeKind to,
                  const std::string& where) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < rows[i].size(); ++j) {
      const json::Value& cell = rows[i][j];
      const auto& path = system.path(NodeKind::kGpu, i, to, j);
      EXPECT_EQ(path.hops(), cell[0].get<int>()) << where << " " << i << " " << j;
      EXPECT_NEAR(path.gbs, cell[1].get<double>(), .051) << where << " " << i << " " << j;
      EXPECT_EQ(to_string(path.type), cell[2].get<std::string>()) << where << " " << i << " " << j;
    }
  }
}

void expect_channels(const TopoChannels& found, const json::Value& answer,
                     const std::string& where) {
  EXPECT_EQ(found.channels.size(), answer.at("channels").get<std::size_t>()) << where;
  EXPECT_NEAR(found.intra_gbs, answer.at("bwIntra").get<double>(), 1e-4) << where;
  EXPECT_NEAR(found.inter_gbs, answer.at("bwInter").get<double>(), 1e-4) << where;
  if (answer.at("typeIntra").is_string()) {
    EXPECT_EQ(to_string(found.intra), answer.at("typeIntra").get<std::string>()) << where;
    EXPECT_EQ(to_string(found.inter), answer.at("typeInter").get<std::string>()) << where;
  }
  if (answer.contains("pattern")) {
    EXPECT_EQ(static_cast<int>(found.pattern), answer.at("pattern").get<int>()) << where;
  }
}

class NcclAnswers : public testing::Test {
 protected:
  void SetUp() override {
    all_ = nccl_answers::load();
    if (all_.is_null()) {
      GTEST_SKIP() << "skipped: no folder " << nccl_answers::folder();
    }
  }
  static NcclTopo topo_of(const nccl_answers::Case& one) {
    auto topo = load_nccl_topo(nccl_answers::folder() / one.file);
    EXPECT_TRUE(topo) << topo.error().message;
    degrade(*topo, one.variant);
    return *topo;
  }
  json::Value all_;
};

TEST_F(NcclAnswers, HaveTheSamePaths) {
  int configurations = 0;
  nccl_answers::each_case(all_, [&](const nccl_answers::Case& one) {
    const NcclTopo topo = topo_of(one);
    const TopoSystem system(topo, all_gpus(topo));
    const json::Value& counts = one.answer->at("graph");
    const std::pair<const char*, NodeKind> kinds[] = {
        {"GPU", NodeKind::kGpu}, {"NVS", NodeKind::kSwitch}, {"CPU", NodeKind::kCpu},
        {"PCI", NodeKind::kPci}, {"NIC", NodeKind::kNic},    {"NET", NodeKind::kNet}};
    for (const auto& [name, kind] : kinds) {
      EXPECT_EQ(system.count(kind), counts.at(name).get<std::size_t>()) << one.name << " " << name;
    }
    expect_paths(system, one.answer->at("gpu_gpu"), NodeKind::kGpu, one.name);
    expect_paths(system, one.answer->at("gpu_net"), NodeKind::kNet, one.name);
    for (std::size_t g = 0; g < system.gpus().size(); ++g) {
      EXPECT_EQ(system.nets()[system.net_of_gpu(g, 0)].dev,
                one.answer->at("first_net_of_gpu")[g].get<int>())
          << one.name << " GPU " << g;
    }
    ++configurations;
  });
  EXPECT_GE(configurations, 38);
}

TEST_F(NcclAnswers, HaveTheSameChannels) {
  nccl_answers::each_case(all_, [&](const nccl_answers::Case& one) {
    const NcclTopo topo = topo_of(one);
    const TopoSystem system(topo, all_gpus(topo));
    const auto start = std::chrono::steady_clock::now();
    const TopoPlan plan = search_channels(system, one.nodes > 1);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    std::cout << one.name << ": " << plan.steps << " steps, " << took.count() << " ms\n";
    EXPECT_FALSE(plan.cut_short);
    expect_channels(plan.ring, one.answer->at("ring"), one.name + " ring");
    expect_channels(plan.tree, one.answer->at("tree"), one.name + " tree");
    if (one.answer->contains("nvls")) {
      expect_channels(plan.nvls, one.answer->at("nvls"), one.name + " nvls");
    } else {
      EXPECT_TRUE(plan.nvls.channels.empty()) << one.name;
    }
  });
}

}  // namespace
}  // namespace tapas::solver
