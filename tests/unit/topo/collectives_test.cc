#include "solver/cost/collectives.h"

#include "nccl_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>

namespace tapas::solver {
namespace {

Collective op_of(const std::string& name) {
  return name == "AllReduce"   ? Collective::kAllReduce
         : name == "AllGather" ? Collective::kAllGather
                               : Collective::kReduceScatter;
}

/// Skeleton files hold no device: what the answers were computed for.
CommGraph graph_of(const nccl_answers::Case& one) {
  CommGraph graph =
      nccl_answers::graph(*one.answer, nccl_answers::read(nccl_answers::folder() / one.file));
  if (one.file == "azure-ndv5-h100.xml") {
    graph.generation = Generation::kHopper;
  } else if (one.file == "azure-ndv2-v100.xml") {
    graph.generation = Generation::kVolta;
  }
  return graph;
}

TEST(NcclAnswers, GiveTheSameTimesFromTheirOwnChannels) {
  const json::Value all = nccl_answers::load();
  if (all.is_null()) {
    GTEST_SKIP() << "skipped: no folder " << nccl_answers::folder();
  }
  std::map<std::string, double> worst;
  int pairs = 0;
  int times = 0;
  nccl_answers::each_case(all, [&](const nccl_answers::Case& one) {
    const CommGraph graph = graph_of(one);
    const auto ranks = one.answer->at("nRanks").get<std::uint32_t>();
    const GroupShape group{one.nodes, ranks / one.nodes};
    for (const auto& [op_name, costs] : one.answer->at("cost").items()) {
      const Collective op = op_of(op_name);
      const auto estimates = collective_estimates(graph, op, group);
      EXPECT_EQ(estimates.size(), costs.size()) << one.name << " " << op_name;
      for (const CollectiveEstimate& estimate : estimates) {
        const std::string key = std::string(to_string(estimate.algorithm)) + "/" +
                                std::string(to_string(estimate.protocol));
        ASSERT_TRUE(costs.contains(key)) << one.name << " " << op_name << " " << key;
        const double latency = costs.at(key).at("lat_us").get<double>();
        const double rate = costs.at(key).at("bw_GBs").get<double>();
        // The file rounds to 0.1 us and 0.01 GB/s.
        EXPECT_NEAR(estimate.latency_s * 1e6, latency, .051) << one.name << " " << key;
        EXPECT_NEAR(estimate.bytes_per_s / 1e9, rate, .0051 + 1e-3 * rate)
            << one.name << " " << key;
        ++pairs;
      }
    }
    for (const auto& [op_name, sizes] : one.answer->at("best").items()) {
      for (const auto& [size, best] : sizes.items()) {
        const auto found = best_collective(graph, op_of(op_name), std::stod(size), group);
        const double expected = best.at("us").get<double>();
        const double deviation = std::abs(found.seconds * 1e6 - expected);
        const std::string key = op_name + " " + best.at("algo").get<std::string>();
        worst[key] = std::max(worst[key], deviation / expected);
        EXPECT_LT(deviation / expected, .01) << one.name << " " << op_name << " " << size;
        ++times;
      }
    }
  });
  EXPECT_GT(pairs, 300);
  EXPECT_GT(times, 500);
  for (const auto& [key, value] : worst) {
    std::cout << key << ": at most " << value * 100 << " % off, with answers rounded to 0.1 us\n";
  }
}

/// Eight A100 behind NVSwitches with four 200 Gb/s NICs: 12 channels of 20 GB/s inside, 4 of 24.
CommGraph a100(bool across) {
  CommGraph graph;
  graph.generation = Generation::kAmpere;
  graph.ring.channels = across ? 4 : 12;
  graph.ring.intra_bytes_per_s = graph.ring.inter_bytes_per_s = across ? 24e9 : 20e9;
  graph.ring.intra = PathType::kNvl;
  graph.ring.inter = across ? PathType::kPxb : PathType::kPix;
  graph.tree = graph.ring;
  if (across) {
    graph.tree.intra_bytes_per_s = 48e9;
  }
  return graph;
}

TEST(Collectives, GiveTheTimesThatNcclGives) {
  struct Row {
    std::uint32_t nodes;
    std::array<double, 6> us;  ///< 1 KiB, 64 KiB, 1 MiB, 16 MiB, 256 MiB, 1 GiB
  };
  const std::array<double, 6> sizes = {1024, 65536, 1048576, 16777216, 268435456, 1073741824};
  const Row all_reduce[] = {{1, {15.0, 16.3, 35.9, 173.6, 2013.3, 7885.4}},
                            {2, {25.3, 34.0, 90.4, 468.4, 5427.1, 21155.8}},
                            {4, {35.3, 46.9, 117.9, 550.7, 5813.6, 22066.5}},
                            {16, {55.3, 66.9, 151.9, 658.0, 7214.7, 23860.9}}};
  const Row all_gather[] = {{1, {10.8, 11.5, 21.3, 93.4, 1010.9, 3946.9}},
                            {4, {42.7, 45.8, 91.9, 282.4, 2854.4, 10980.9}}};
  const auto expect = [&](Collective op, const Row& row) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto found = best_collective(a100(row.nodes > 1), op, sizes[i], {row.nodes, 8});
      EXPECT_NEAR(found.seconds * 1e6, row.us[i], .06) << row.nodes << " nodes, " << sizes[i];
    }
  };
  for (const Row& row : all_reduce) {
    expect(Collective::kAllReduce, row);
  }
  for (const Row& row : all_gather) {
    expect(Collective::kAllGather, row);
    expect(Collective::kReduceScatter, row);
  }
}

TEST(Collectives, FollowTheRingByHand) {
  CommGraph graph = a100(false);
  graph.tree.channels = 12;
  const auto estimates = collective_estimates(graph, Collective::kAllGather, {1, 8});
  ASSERT_EQ(estimates.size(), 3U);
  const CollectiveEstimate& simple = estimates[2];
  EXPECT_EQ(simple.protocol, Protocol::kSimple);
  EXPECT_NEAR(simple.latency_s, (8.4 + 7 * 3.4) * 1e-6, 1e-12);
  EXPECT_NEAR(simple.bytes_per_s, 240e9 * 8 / 7, 1);
}

TEST(Collectives, TakeNoTimeAloneAndForeverApart) {
  EXPECT_EQ(best_collective(a100(false), Collective::kAllReduce, 1e6, {1, 1}).seconds, 0);
  EXPECT_TRUE(
      std::isinf(best_collective(CommGraph(), Collective::kAllReduce, 1e6, {1, 2}).seconds));
  const CommTable table = simple_comm_table(8, 160e9, 0, 0);
  EXPECT_TRUE(std::isinf(collective_time_s(table, Collective::kAllReduce, 1e6, {2, 8})));
  EXPECT_LT(collective_time_s(table, Collective::kAllReduce, 1e6, {1, 8}), 1e-3);
  EXPECT_EQ(collective_time_s(table, Collective::kAllReduce, 0, {1, 8}), 0);
}

TEST(Collectives, TakeLongerOnLess) {
  const GroupShape group{4, 8};
  const double bytes = 256e6;
  const auto seconds = [&](const CommGraph& graph) {
    return best_collective(graph, Collective::kAllReduce, bytes, group).seconds;
  };
  const CommGraph graph = a100(true);
  EXPECT_EQ(seconds(limit_fabric(graph, Fabric{})), seconds(graph));
  EXPECT_EQ(seconds(limit_fabric(graph, Fabric{200e9, 0})), seconds(graph));
  const double shared = seconds(limit_fabric(graph, Fabric{48e9, 0}));
  EXPECT_GT(shared, 1.8 * seconds(graph));
  EXPECT_LT(shared, 2.2 * seconds(graph));
  EXPECT_EQ(seconds(slow_channels(graph, .5)), shared);
  EXPECT_GT(seconds(limit_fabric(graph, Fabric{96e9, 50e-6})), seconds(graph));
}

TEST(Collectives, NeverGetFasterWithSize) {
  for (const std::uint32_t nodes : {1U, 2U, 4U}) {
    double before = 0;
    for (double bytes = 1; bytes < 1e10; bytes *= 1.7) {
      const double now =
          best_collective(a100(nodes > 1), Collective::kAllGather, bytes, {nodes, 8}).seconds;
      EXPECT_GE(now, before);
      before = now;
    }
  }
}

TEST(Collectives, PreferWhatWasMeasured) {
  CommTable table = simple_comm_table(8, 240e9, 4, 25e9);
  const Collective op = Collective::kAllReduce;
  table.measured = {{op, 1, 8, 1e6, 20e-6}, {op, 1, 8, 4e6, 40e-6}, {op, 2, 16, 1e6, 99e-6}};
  EXPECT_DOUBLE_EQ(collective_time_s(table, op, 1e6, {1, 8}), 20e-6);
  EXPECT_NEAR(collective_time_s(table, op, 2e6, {1, 8}), std::sqrt(20e-6 * 40e-6), 1e-12);
  EXPECT_DOUBLE_EQ(collective_time_s(table, op, 8e6, {1, 8}), 80e-6);
  EXPECT_DOUBLE_EQ(collective_time_s(table, op, 1e3, {1, 8}), 20e-6);
  EXPECT_DOUBLE_EQ(collective_time_s(table, op, 1e6, {2, 8}), 99e-6);
  EXPECT_NE(collective_time_s(table, op, 1e6, {1, 4}), 20e-6);
  EXPECT_NE(collective_time_s(table, Collective::kAllGather, 1e6, {1, 8}), 20e-6);
}

TEST(Collectives, SendOverTheNarrowestLink) {
  const DevicePath nvlink{PathType::kNvl, 200e9};
  EXPECT_NEAR(send_time_s(nvlink, 2e6, false), 11.8e-6 + 10e-6, 1e-12);
  EXPECT_NEAR(send_time_s({PathType::kPhb, 20e9}, 2e6, false), 14.1e-6 + 100e-6, 1e-12);
  EXPECT_NEAR(send_time_s({PathType::kPxb, 20e9}, 2e6, true), 22.4e-6 + 100e-6, 1e-12);
  EXPECT_EQ(send_time_s({PathType::kLoc, 0}, 1e6, false), 0);
  EXPECT_TRUE(std::isinf(send_time_s(DevicePath(), 1e6, true)));
}

TEST(CommTable, OfANodeTypeWithoutTopologySharesItsNics) {
  const CommTable table = simple_comm_table(8, 160e9, 4, 25e9);
  ASSERT_EQ(table.shapes.size(), 4U);
  EXPECT_EQ(table.shape(5).per_node, 8U);
  EXPECT_EQ(table.shape(99).per_node, 8U);
  EXPECT_DOUBLE_EQ(table.shape(1).across.ring.inter_bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(table.shape(4).across.ring.inter_bytes_per_s, 100e9);
  EXPECT_DOUBLE_EQ(table.shape(8).across.ring.inter_bytes_per_s, 100e9);
  EXPECT_EQ(table.shape(8).inside.ring.intra, PathType::kNvl);
  EXPECT_EQ(table.path(2, 2).type, PathType::kLoc);
  EXPECT_DOUBLE_EQ(table.path(2, 3).bytes_per_s, 160e9);
  EXPECT_DOUBLE_EQ(table.nic_path(7).bytes_per_s, 25e9);
  EXPECT_EQ(simple_comm_table(2, 20e9, 1, 12e9).shape(2).inside.ring.intra, PathType::kPhb);
  EXPECT_EQ(simple_comm_table(6, 160e9, 4, 25e9).shapes.back().per_node, 6U);
}

}  // namespace
}  // namespace tapas::solver
