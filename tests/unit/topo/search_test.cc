#include "nccl_answers.h"
#include "solver/topo/comm_tables.h"
#include "solver/topo/oddities.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
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
    const TopoPlan plan = search_channels(system, one.nodes > 1);
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

TEST_F(NcclAnswers, GiveTheSameTimesFromOurChannels) {
  int times = 0;
  double worst = 0;
  nccl_answers::each_case(all_, [&](const nccl_answers::Case& one) {
    const NcclTopo topo = topo_of(one);
    const TopoSystem system(topo, all_gpus(topo));
    const CommGraph graph = comm_graph(system, search_channels(system, one.nodes > 1));
    const GroupShape group{one.nodes, static_cast<std::uint32_t>(topo.gpus.size())};
    for (const Collective op :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      const char* name = op == Collective::kAllReduce   ? "AllReduce"
                         : op == Collective::kAllGather ? "AllGather"
                                                        : "ReduceScatter";
      for (const auto& [size, best] : one.answer->at("best").at(name).items()) {
        const CollectiveTime found = best_collective(graph, op, std::stod(size), group);
        const double expected = best.at("us").get<double>();
        // The answers are rounded to 0.1 us.
        const double off = std::max(0.0, std::abs(found.seconds * 1e6 - expected) - .0501);
        worst = std::max(worst, off / expected);
        EXPECT_LT(off / expected, .01) << one.name << " " << name << " " << size;
        EXPECT_EQ(
            std::string(to_string(found.algorithm)) + "/" + std::string(to_string(found.protocol)),
            best.at("algo").get<std::string>())
            << one.name << " " << name << " " << size;
        ++times;
      }
    }
  });
  std::cout << times << " times, beyond rounding at most " << worst * 100 << " % off\n";
  EXPECT_GE(times, 700);
}

// Small servers of our own, to be put together as a test needs them.

std::string pci(const std::string& busid, const std::string& pci_class, const std::string& inside,
                const std::string& speed = "16.0 GT/s PCIe", const std::string& more = "") {
  return "<pci busid=\"" + busid + "\" class=\"" + pci_class + "\" link_speed=\"" + speed +
         "\" link_width=\"16\"" + more + ">" + inside + "</pci>";
}
std::string bridge(const std::string& busid, const std::string& inside,
                   const std::string& more = "") {
  return pci(busid, "0x060400", inside, "16.0 GT/s PCIe", more);
}
std::string gpu(int dev, const std::string& inside = "", int sm = 80) {
  return pci("0000:0" + std::to_string(dev + 1) + ":00.0", "0x030200",
             "<gpu dev=\"" + std::to_string(dev) + "\" sm=\"" + std::to_string(sm) + "\" rank=\"" +
                 std::to_string(dev) + "\" gdr=\"1\">" + inside + "</gpu>");
}
std::string nvswitch(int count) {
  return "<nvlink target=\"0000:c0:00.0\" count=\"" + std::to_string(count) +
         "\" tclass=\"0x068000\"/>";
}
std::string net(int dev, int gbps = 200, const std::string& more = "") {
  return "<net name=\"n" + std::to_string(dev) + "\" dev=\"" + std::to_string(dev) + "\" speed=\"" +
         std::to_string(gbps * 1000) + "\" gdr=\"1\" " + more + "/>";
}
std::string nic(int dev, int gbps = 200) {
  return pci("0000:a" + std::to_string(dev) + ":00.0", "0x020000",
             "<nic>" + net(dev, gbps) + "</nic>");
}
std::string cpu(int numa, const std::string& inside, const std::string& vendor = "GenuineIntel") {
  return "<cpu numaid=\"" + std::to_string(numa) + "\" arch=\"x86_64\" vendor=\"" + vendor +
         "\" familyid=\"6\" modelid=\"106\">" + inside + "</cpu>";
}
NcclTopo server(const std::string& cpus) {
  const auto topo = parse_nccl_topo("<system version=\"1\">" + cpus + "</system>", "server");
  EXPECT_TRUE(topo) << topo.error().message;
  return topo.value_or(NcclTopo());
}
TopoSystem system_of(const NcclTopo& topo) { return TopoSystem(topo, all_gpus(topo)); }
PathType gpu_path(const TopoSystem& system, std::size_t a, std::size_t b) {
  return system.path(NodeKind::kGpu, a, NodeKind::kGpu, b).type;
}
const TopoSystem::Path& nic_path(const TopoSystem& system, std::size_t gpu, std::size_t net) {
  return system.path(NodeKind::kGpu, gpu, NodeKind::kNet, net);
}

TEST(TopoSystem, TellsPathsApart) {
  const NcclTopo topo =
      server(cpu(0, bridge("0000:70:00.0", bridge("0000:71:00.0", gpu(0) + gpu(1)) +
                                               bridge("0000:72:00.0", gpu(2))) +
                        gpu(3)) +
             cpu(1, gpu(4)));
  const TopoSystem system = system_of(topo);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kPix);
  EXPECT_EQ(gpu_path(system, 0, 2), PathType::kPxb);
  EXPECT_EQ(gpu_path(system, 0, 3), PathType::kPhb);
  EXPECT_EQ(gpu_path(system, 0, 4), PathType::kSys);
  EXPECT_FLOAT_EQ(system.path(NodeKind::kGpu, 0, NodeKind::kGpu, 4).gbs, 10);
  EXPECT_EQ(system.path(NodeKind::kGpu, 0, NodeKind::kGpu, 1).hops(), 2);
}

TEST(TopoSystem, FlattensTwoLevelBroadcomSwitches) {
  const std::string broadcom =
      " vendor=\"0x1000\" device=\"0xc010\" subsystem_vendor=\"0x1000\" "
      "subsystem_device=\"0xa096\"";
  const auto hops = [&](const std::string& more) {
    const NcclTopo topo = server(cpu(
        0,
        bridge("0000:70:00.0",
               bridge("0000:71:00.0", gpu(0), more) + bridge("0000:72:00.0", nic(0), more), more)));
    const TopoSystem system = system_of(topo);
    return std::pair(nic_path(system, 0, 0).hops(), nic_path(system, 0, 0).type);
  };
  EXPECT_EQ(hops(""), std::pair(5, PathType::kPxb));
  EXPECT_EQ(hops(broadcom), std::pair(3, PathType::kPix));
}

TEST(TopoSystem, SharesACardBetweenItsPorts) {
  const NcclTopo topo = server(cpu(
      0, bridge("0000:70:00.0", gpu(0) + pci("0000:a0:00.0", "0x020000",
                                             "<nic>" + net(0, 100, "port=\"1\" guid=\"0x7\"") +
                                                 net(1, 100, "port=\"2\" guid=\"0x7\"") + "</nic>",
                                             "8.0 GT/s PCIe"))));
  const TopoNode node = describe_node(topo);
  EXPECT_EQ(node.nics, 1U);
  EXPECT_DOUBLE_EQ(node.nic_bytes_per_s, 12e9);  // PCIe Gen3, not twice 12.5
  const ChannelSet& ring = node.comm.shape(1).across.ring;
  EXPECT_LE(ring.channels * ring.inter_bytes_per_s, 12e9);
}

TEST(TopoSystem, FindsTheNearestNicWhateverTheOrderOfSiblings) {
  for (const bool swapped : {false, true}) {
    const std::string near = bridge("0000:70:00.0", swapped ? nic(0) + gpu(0) : gpu(0) + nic(0));
    const std::string far = bridge("0000:78:00.0", swapped ? nic(1) + gpu(1) : gpu(1) + nic(1));
    const NcclTopo topo = server(cpu(0, swapped ? far + near : near + far));
    const TopoSystem system = system_of(topo);
    for (std::size_t g = 0; g < 2; ++g) {
      EXPECT_EQ(system.nets()[system.net_of_gpu(g, 0)].dev, system.gpus()[g].dev);
    }
  }
}

TEST(TopoSystem, ReachesADistantNicThroughItsNeighbour) {
  const NcclTopo topo = server(cpu(0, bridge("0000:70:00.0", gpu(0, nvswitch(12)) + nic(0))) +
                               cpu(1, bridge("0000:78:00.0", gpu(1, nvswitch(12)))));
  const TopoSystem system = system_of(topo);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kNvl);
  EXPECT_EQ(nic_path(system, 0, 0).type, PathType::kPix);
  EXPECT_EQ(nic_path(system, 1, 0).type, PathType::kPxn);
  EXPECT_FLOAT_EQ(nic_path(system, 1, 0).gbs, 24);
}

TEST(TopoSystem, GoesThroughTheCpuWithoutGpuDirect) {
  NcclTopo topo = server(cpu(0, bridge("0000:70:00.0", gpu(0) + nic(0))));
  topo.nics[0].gdr = false;
  EXPECT_EQ(nic_path(system_of(topo), 0, 0).type, PathType::kPhb);
}

TEST(TopoSystem, TakesTheChipLinkRatherThanPcie) {
  const NcclTopo topo =
      server(cpu(0, bridge("0000:70:00.0", gpu(0, "<c2c bw=\"43125\" count=\"8\"/>", 90)) +
                        bridge("0000:78:00.0", nic(0, 400))));
  const TopoSystem system = system_of(topo);
  EXPECT_EQ(system.path(NodeKind::kGpu, 0, NodeKind::kCpu, 0).type, PathType::kC2c);
  EXPECT_FLOAT_EQ(system.path(NodeKind::kGpu, 0, NodeKind::kCpu, 0).gbs, 345);
  EXPECT_EQ(nic_path(system, 0, 0).type, PathType::kP2c);
}

TEST(TopoSystem, LetsPairsBehindAmdCpusTalkDirectly) {
  const auto type = [](const std::string& vendor) {
    const NcclTopo topo = server(cpu(0, gpu(0), vendor) + cpu(1, gpu(1), vendor));
    return system_of(topo).path(NodeKind::kGpu, 0, NodeKind::kGpu, 1);
  };
  EXPECT_EQ(type("AuthenticAMD").type, PathType::kSys);
  EXPECT_FLOAT_EQ(type("AuthenticAMD").gbs, 16);
}

TEST(TopoSystem, UsesBridgeLinksThatBothEndsList) {
  const auto type = [](bool both) {
    const std::string link = "<pcilink target=\"0000:78:00.0\"/>";
    const std::string back = both ? "<pcilink target=\"0000:70:00.0\"/>" : "";
    const NcclTopo topo = server(
        cpu(0, bridge("0000:70:00.0", link + gpu(0)) + bridge("0000:78:00.0", back + gpu(1))));
    return gpu_path(system_of(topo), 0, 1);
  };
  EXPECT_EQ(type(true), PathType::kPxb);
  EXPECT_EQ(type(false), PathType::kPhb);
}

/// Four GPUs with what chance gives them.
NcclTopo random_server(std::uint64_t& seed) {
  const auto below = [&seed](std::uint64_t n) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33U) % n;
  };
  const bool switched = below(2) == 0;
  const int sm = std::array{70, 80, 90, 100}[below(4)];
  const std::string vendor = below(3) == 0 ? "AuthenticAMD" : "GenuineIntel";
  std::string halves[2];
  for (int i = 0; i < 4; ++i) {
    const int links = static_cast<int>(4 + below(9));
    std::string inside = gpu(i, switched && below(12) != 0 ? nvswitch(links) : "", sm);
    if (below(3) != 0) {
      inside += nic(i, std::array{25, 100, 200, 400}[below(4)]);
    }
    halves[below(4) == 0 ? 1 - i / 2 : i / 2] +=
        below(4) == 0 ? inside : bridge("0000:7" + std::to_string(i) + ":00.0", inside);
  }
  if (below(3) == 0) {
    halves[0] += "<nic>" + net(8, 10) + "</nic>";
  }
  return server(cpu(0, halves[0], vendor) + cpu(1, halves[1], vendor));
}

void expect_same(const TopoChannels& pruned, const TopoChannels& full, const std::string& where) {
  EXPECT_EQ(pruned.channels.size(), full.channels.size()) << where;
  EXPECT_EQ(pruned.intra_gbs, full.intra_gbs) << where;
  EXPECT_EQ(pruned.inter_gbs, full.inter_gbs) << where;
  EXPECT_EQ(pruned.intra, full.intra) << where;
  EXPECT_EQ(pruned.inter, full.inter) << where;
  EXPECT_EQ(pruned.pattern, full.pattern) << where;
}

TEST(TopoSearch, FindsTheSamePrunedAsStepByStep) {
  std::uint64_t seed = 11;
  std::uint64_t pruned_steps = 0;
  std::uint64_t full_steps = 0;
  for (int round = 0; round < 60; ++round) {
    const NcclTopo topo = random_server(seed);
    const TopoSystem system = system_of(topo);
    for (const bool between : {false, true}) {
      const TopoPlan pruned = search_channels(system, between);
      const TopoPlan full = search_channels(system, between, SearchEffort::kAsNccl);
      const std::string where =
          "round " + std::to_string(round) + (between ? " between nodes" : " inside");
      expect_same(pruned.ring, full.ring, where + " ring");
      expect_same(pruned.tree, full.tree, where + " tree");
      expect_same(pruned.nvls, full.nvls, where + " nvls");
      pruned_steps += pruned.steps;
      full_steps += full.steps;
    }
  }
  EXPECT_LT(pruned_steps, full_steps);
}

TEST(TopoSearch, EndsOnTheLargestServers) {
  std::string inside;
  for (int i = 0; i < 64; ++i) {
    const std::string number = std::to_string(i);
    inside += pci("0000:" + number + ":01.0", "0x030200",
                  "<gpu dev=\"" + number + "\" sm=\"90\" rank=\"" + number + "\" gdr=\"1\"/>");
    inside += pci("0001:" + number + ":01.0", "0x020000", "<nic>" + net(i, 10 + i) + "</nic>");
  }
  const NcclTopo topo = server(cpu(0, inside));
  const TopoPlan plan = search_channels(system_of(topo), true);
  EXPECT_TRUE(plan.cut_short);
  EXPECT_FALSE(plan.ring.channels.empty());
}

TEST(TopoSearch, StandsInWhereNoPathFits) {
  const NcclTopo topo = server(cpu(0, gpu(0)) + cpu(1, gpu(1)));
  NcclTopo cut = topo;
  for (TopoDevice& device : cut.devices) {
    device.bytes_per_s = 1e6;
  }
  const TopoPlan plan = search_channels(system_of(cut), false);
  ASSERT_EQ(plan.ring.channels.size(), 1U);
  EXPECT_FLOAT_EQ(plan.ring.intra_gbs, .1F);
  EXPECT_EQ(plan.ring.intra, PathType::kSys);
  EXPECT_TRUE(search_channels(system_of(topo), true).ring.channels.empty());  // no NIC
}

NcclTopo own_example() {
  const auto topo =
      load_nccl_topo(std::string(TAPAS_SOURCE_DIR) + "/config/examples/topo-a800-8gpu-roce.xml");
  EXPECT_TRUE(topo);
  return topo.value_or(NcclTopo());
}

std::string write_topo(const std::string& name, const std::string& inside) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("tapas_" + name + "_" + std::to_string(::getpid()) + ".xml");
  std::ofstream(path) << "<system version=\"1\">" << inside << "</system>";
  return path;
}

TEST(CommTables, DescribeTheA800Example) {
  const TopoNode node = describe_node(own_example());
  EXPECT_EQ(node.devices, 8U);
  EXPECT_DOUBLE_EQ(node.fast_link_bytes_per_s, 160e9);
  EXPECT_EQ(node.nics, 4U);
  EXPECT_DOUBLE_EQ(node.nic_bytes_per_s, 24e9);
  ASSERT_EQ(node.comm.shapes.size(), 4U);
  const CommShape& whole = node.comm.shape(8);
  EXPECT_EQ(whole.inside.ring.channels, 8U);
  EXPECT_DOUBLE_EQ(whole.inside.ring.intra_bytes_per_s, 20e9);
  EXPECT_EQ(whole.across.ring.channels, 4U);
  EXPECT_DOUBLE_EQ(whole.across.ring.inter_bytes_per_s, 24e9);
  EXPECT_EQ(whole.inside.generation, Generation::kAmpere);
  EXPECT_EQ(node.comm.shape(3).per_node, 4U);
  EXPECT_EQ(node.comm.path(0, 7).type, PathType::kNvl);
  EXPECT_EQ(node.comm.path(5, 5).type, PathType::kLoc);
  EXPECT_EQ(node.comm.nic_path(6).type, PathType::kPix);
}

TEST(CommTables, SlowARunningGroupToItsWorstChannel) {
  const NcclTopo healthy = own_example();
  const auto rate = [](const CommGraph& graph) {
    return graph.ring.channels * graph.ring.inter_bytes_per_s;
  };
  const double planned = rate(running_graph(healthy, healthy, 8, true));
  EXPECT_DOUBLE_EQ(planned, 96e9);
  NcclTopo half = healthy;
  half.nics[2].bytes_per_s /= 2;
  EXPECT_NEAR(rate(running_graph(healthy, half, 8, true)), 96e9 * 12.5 / 24, 1e3);
  // Inside the node nothing changes; a new start makes the best of it.
  EXPECT_EQ(running_graph(healthy, half, 8, false).ring.intra_bytes_per_s,
            running_graph(healthy, healthy, 8, false).ring.intra_bytes_per_s);
  const TopoNode replanned = describe_node(half);
  EXPECT_GT(rate(replanned.comm.shape(8).across), 96e9 * 12.5 / 24);
  EXPECT_LT(rate(replanned.comm.shape(8).across), planned);
  NcclTopo lame = healthy;
  lame.gpus[3].links[0].count = 1;
  EXPECT_NEAR(running_graph(healthy, lame, 8, false).ring.intra_bytes_per_s, 20e9 * 7 / 8, 1e3);
  NcclTopo dead = healthy;
  dead.devices[dead.nics[2].device].kind = TopoKind::kOther;
  dead.nics.erase(dead.nics.begin() + 2);
  EXPECT_EQ(running_graph(healthy, dead, 8, true).ring.channels, 0U);
}

TEST(CommTables, LeaveOutVirtualInterfaces) {
  const std::string path = write_topo(
      "virtual", cpu(0, gpu(0) + nic(0, 10) + "<nic>" + net(1, 100) + net(2, 100) + "</nic>") +
                     cpu(1, "<nic>" + net(1, 100) + "</nic>"));
  const auto node = load_topo_node(path);
  const auto again = load_topo_node(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->nics, 1U);
  EXPECT_DOUBLE_EQ(node->nic_bytes_per_s, 1.25e9);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->nics, 1U);
  // Where there is nothing else they are what there is.
  NcclTopo only = server(cpu(0, gpu(0) + "<nic>" + net(1, 100) + "</nic>"));
  leave_out_virtual_nics(only);
  EXPECT_EQ(describe_node(only).nics, 1U);
}

TEST(CommTables, TakeGroupsOfOneSocketWhateverTheNumbers) {
  // Even devices on one socket, odd ones on the other.
  const NcclTopo topo = server(cpu(0, gpu(0) + gpu(2)) + cpu(1, gpu(1) + gpu(3)));
  const CommTable comm = describe_node(topo).comm;
  EXPECT_EQ(comm.path(0, 1).type, PathType::kSys);
  EXPECT_EQ(comm.shape(2).inside.ring.intra, PathType::kPhb);
  EXPECT_EQ(comm.shape(4).inside.ring.intra, PathType::kSys);
}

TEST(CommTables, RefuseFilesWithoutGpus) {
  const std::string path = write_topo("no_gpu", "<cpu numaid=\"0\"><pci busid=\"0\"/></cpu>");
  const auto node = load_topo_node(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(node);
  EXPECT_NE(node.error().message.find("no GPU found"), std::string::npos);
  EXPECT_FALSE(load_topo_node("/nonexistent/topo.xml"));
}

}  // namespace
}  // namespace tapas::solver
