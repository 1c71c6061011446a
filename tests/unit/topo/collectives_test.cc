#include "solver/cost/collectives.h"

#include "nccl_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
        const double deviation = std::max(0.0, std::abs(found.seconds * 1e6 - expected) - .05);
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
    std::cout << key << ": at most " << value * 100 << " % off\n";
  }
}

}  // namespace
}  // namespace tapas::solver
