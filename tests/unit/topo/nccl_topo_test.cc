#include "solver/topo/nccl_topo.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::solver {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string own_example() {
  return read(std::string(TAPAS_SOURCE_DIR) + "/config/examples/topo-a800-8gpu-roce.xml");
}

std::string error_of(const std::string& text) {
  const auto topo = parse_nccl_topo(text, "t.xml");
  return topo ? "loaded" : topo.error().message;
}

/// One CPU around the given elements.
std::string system(const std::string& inside, const std::string& version = "1") {
  return "<system version=\"" + version +
         "\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
         "modelid=\"106\">\n" +
         inside + "</cpu>\n</system>\n";
}

std::string gpu(const std::string& attributes = "dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"",
                const std::string& inside = "") {
  return "<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
         "link_width=\"16\">\n<gpu " +
         attributes + ">" + inside + "</gpu>\n</pci>\n";
}

TEST(NcclTopo, ReadsTheA800Example) {
  const auto topo = parse_nccl_topo(own_example(), "a800");
  ASSERT_TRUE(topo) << topo.error().message;
  ASSERT_EQ(topo->gpus.size(), 8U);
  ASSERT_EQ(topo->nics.size(), 4U);
  EXPECT_TRUE(topo->nvswitch);
  EXPECT_TRUE(topo->warnings.empty());
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(topo->gpus[i].dev, static_cast<int>(i));
    EXPECT_EQ(topo->gpus[i].nvlinks, 8U);
    EXPECT_DOUBLE_EQ(topo->gpus[i].nvlink_bytes_per_s, 160e9);
    EXPECT_DOUBLE_EQ(topo->gpus[i].pcie_bytes_per_s, 24e9);
    EXPECT_EQ(topo->gpus[i].numa, i < 4 ? 0 : 1);
    EXPECT_EQ(topo->nics_of_gpu[i], std::vector<std::uint32_t>{i / 2});
  }
  for (const TopoNic& nic : topo->nics) {
    EXPECT_DOUBLE_EQ(nic.bytes_per_s, 25e9);
    EXPECT_TRUE(nic.behind_switch);
  }
}

TEST(NcclTopo, SortsGpusByDevice) {
  const std::string text = system(gpu("dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\"") +
                                  gpu("dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\""));
  const auto topo = parse_nccl_topo(text, "t.xml");
  ASSERT_TRUE(topo) << topo.error().message;
  EXPECT_EQ(topo->gpus[0].sm, 90);
  EXPECT_EQ(topo->gpus[1].sm, 80);
}

TEST(NcclTopo, CountsNvlinksPerGeneration) {
  const auto rate = [](const std::string& sm) {
    const auto topo = parse_nccl_topo(
        system(gpu("dev=\"0\" sm=\"" + sm + "\" rank=\"0\" gdr=\"1\"",
                   "<nvlink target=\"0000:c1:00.0\" count=\"12\" tclass=\"0x068000\"/>"
                   "<nvlink target=\"0000:c2:00.0\" count=\"6\" tclass=\"0x068000\"/>")),
        "t.xml");
    return topo ? topo->gpus[0].nvlink_bytes_per_s : -1;
  };
  EXPECT_DOUBLE_EQ(rate("80"), 360e9);
  EXPECT_DOUBLE_EQ(rate("90"), 370.8e9);  // H100 of NCCL's table
  EXPECT_DOUBLE_EQ(rate("100"), 721.8e9);
  EXPECT_DOUBLE_EQ(rate("60"), 324e9);
}

TEST(NcclTopo, ReadsPciSpeedsAsNcclDoes) {
  const auto rate = [](const std::string& speed, const std::string& width) {
    const auto topo =
        parse_nccl_topo(system("<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"" +
                               speed + "\" link_width=\"" + width +
                               "\"><gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"/></pci>"),
                        "t.xml");
    return topo ? topo->gpus[0].pcie_bytes_per_s : -1;
  };
  EXPECT_DOUBLE_EQ(rate("2.5 GT/s PCIe", "16"), 3e9);
  EXPECT_DOUBLE_EQ(rate("16 GT/s", "16"), 24e9);
  EXPECT_DOUBLE_EQ(rate("32.0 GT/s PCIe", "4"), 12e9);
  EXPECT_DOUBLE_EQ(rate("5.0 GT/s", "16"), 12e9);  // not in the table: Gen3
  EXPECT_DOUBLE_EQ(rate("", "0"), 12e9);
  EXPECT_DOUBLE_EQ(rate("64.0 GT/s PCIe", "16"), 96e9);
}

TEST(NcclTopo, PrefersTheNicWithTheWidestThenNearestPath) {
  const auto topo = parse_nccl_topo(
      system("<pci busid=\"0000:00:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" "
             "link_width=\"16\">" +
             gpu() +
             "<pci busid=\"0000:02:00.0\" class=\"0x020000\" link_speed=\"16 GT/s\" "
             "link_width=\"16\"><nic><net name=\"near\" dev=\"0\" speed=\"100000\"/></nic></pci>"
             "</pci>"
             "<pci busid=\"0000:03:00.0\" class=\"0x020000\" link_speed=\"16 GT/s\" "
             "link_width=\"16\"><nic><net name=\"far\" dev=\"1\" speed=\"100000\"/>"
             "<net name=\"veth0\" speed=\"10000\"/></nic></pci>"
             "<nic><net name=\"bridge\" dev=\"2\" speed=\"400000\"/></nic>"),
      "t.xml");
  ASSERT_TRUE(topo) << topo.error().message;
  ASSERT_EQ(topo->nics.size(), 2U);  // no dev: left out; no PCI device: virtual
  ASSERT_EQ(topo->nics_of_gpu[0].size(), 1U);
  EXPECT_EQ(topo->nics[topo->nics_of_gpu[0][0]].name, "near");
  EXPECT_FALSE(topo->nics[1].behind_switch);
  EXPECT_EQ(topo->warnings.size(), 2U);
}

TEST(NcclTopo, RefusesOtherFilesWithTheirLine) {
  EXPECT_EQ(error_of("<graphs version=\"1\"><graph id=\"0\"/></graphs>"),
            "t.xml: line 1: <graphs>: this is a graph dump (NCCL_GRAPH_DUMP_FILE); a topology from "
            "NCCL_TOPO_DUMP_FILE is needed");
  EXPECT_EQ(error_of(system(gpu(), "2")),
            "t.xml: line 1: <system>: XML topology has wrong version 2, 1 needed (RCCL writes "
            "version 2 for AMD GPUs)");
  EXPECT_NE(error_of("<system></system>").find("version not found"), std::string::npos);
  EXPECT_NE(error_of("<pci busid=\"0\"/>").find("fragment"), std::string::npos);
  EXPECT_NE(error_of(""), "loaded");
  EXPECT_NE(error_of("hello"), "loaded");
  EXPECT_NE(error_of(system("")).find("no GPU found"), std::string::npos);
}

TEST(NcclTopo, RefusesBadAttributesWithTheirLine) {
  EXPECT_EQ(error_of(system(gpu("sm=\"80\" rank=\"0\""))),
            "t.xml: line 4: <gpu>: attribute dev not found");
  EXPECT_EQ(error_of(system(gpu("dev=\"zero\" sm=\"80\" rank=\"0\""))),
            "t.xml: line 4: <gpu>: dev=\"zero\" is not a sensible integer");
  EXPECT_NE(error_of(system(gpu("dev=\"99999999999999999999\" sm=\"80\" rank=\"0\"")))
                .find("not a sensible integer"),
            std::string::npos);
  EXPECT_NE(error_of(system(gpu("dev=\"0\" sm=\"80\" rank=\"0\"",
                                "<nvlink target=\"x\" tclass=\"0x068000\"/>")))
                .find("attribute count not found"),
            std::string::npos);
}

TEST(NcclTopo, RefusesEveryTruncationOfAFile) {
  const std::string text = own_example();
  const auto end = text.rfind("</system>");
  for (std::size_t length = 0; length < end; length += 7) {
    const auto topo = parse_nccl_topo(std::string_view(text).substr(0, length), "t.xml");
    ASSERT_FALSE(topo) << length;
    ASSERT_NE(topo.error().message.find("t.xml: line "), std::string::npos);
  }
}

TEST(NcclTopo, SurvivesDamagedBytes) {
  const std::string text = own_example();
  std::uint64_t random = 3;
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = text;
    for (int k = 0; k < 4; ++k) {
      random = random * 6364136223846793005ULL + 1442695040888963407ULL;
      damaged[(random >> 33U) % damaged.size()] = static_cast<char>(random >> 25U);
    }
    refused += parse_nccl_topo(damaged, "t.xml") ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST(NcclTopo, HoldsToItsLimits) {
  std::string deep;
  for (int i = 0; i < 100; ++i) {
    deep += "<pci busid=\"0\" link_speed=\"\" link_width=\"0\">";
  }
  for (int i = 0; i < 100; ++i) {
    deep += "</pci>";
  }
  EXPECT_NE(error_of(system(deep)).find("nested deeper than 64 elements"), std::string::npos);
  std::string many;
  for (int i = 0; i < 70'000; ++i) {
    many += "<x/>";
  }
  EXPECT_NE(error_of(system(many)).find("elements are over the limit of 65536"), std::string::npos);
  EXPECT_NE(error_of(std::string((16U << 20U) + 1, ' ')).find("larger than"), std::string::npos);
}

TEST(NcclTopo, NamesTheFileThatCannotBeRead) {
  const auto topo = load_nccl_topo("/nonexistent/topo.xml");
  ASSERT_FALSE(topo);
  EXPECT_EQ(topo.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(load_nccl_topo("/"));
}

/// Dumps of real machines, when they are at hand.
class RealDumps : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) {
      GTEST_SKIP() << "skipped: no folder " << folder_;
    }
  }
  fs::path folder_ = fs::path(TAPAS_SOURCE_DIR) / ".." / "shared" / "data" / "topo";
};

TEST_F(RealDumps, LoadOrSayWhyNot) {
  int loaded = 0;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".xml") {
      continue;
    }
    ++files;
    const auto topo = load_nccl_topo(entry.path());
    if (topo) {
      ++loaded;
      EXPECT_FALSE(topo->gpus.empty());
      EXPECT_EQ(topo->nics_of_gpu.size(), topo->gpus.size());
    } else {
      EXPECT_EQ(topo.error().message.rfind(entry.path().string(), 0), 0U);
      EXPECT_GT(topo.error().message.size(), entry.path().string().size() + 10);
    }
  }
  EXPECT_GE(files, 20);
  EXPECT_GE(loaded, 14);
}

TEST_F(RealDumps, ShowA100ServersAsNcclSeesThem) {
  const auto topo = load_nccl_topo(folder_ / "a100-8gpu-roce-bond.xml");
  ASSERT_TRUE(topo) << topo.error().message;
  ASSERT_EQ(topo->gpus.size(), 8U);
  EXPECT_EQ(topo->nics.size(), 5U);
  EXPECT_TRUE(topo->nvswitch);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(topo->gpus[i].nvlink_bytes_per_s, 240e9);
    ASSERT_EQ(topo->nics_of_gpu[i].size(), 1U);
    EXPECT_EQ(topo->nics[topo->nics_of_gpu[i][0]].name, "mlx5_bond_" + std::to_string(i / 2 + 1));
  }
  EXPECT_FALSE(topo->nics[0].behind_switch);  // the front-end NIC hangs on the CPU
}

TEST_F(RealDumps, KeepWhatTheirIndexSays) {
  const auto h800 = load_nccl_topo(folder_ / "h800-nvswitch-ib.xml");
  ASSERT_TRUE(h800);
  EXPECT_DOUBLE_EQ(h800->gpus[0].nvlink_bytes_per_s, 164.8e9);
  const auto reversed = load_nccl_topo(folder_ / "ibm-h100-vm-gen1switch.xml");
  ASSERT_TRUE(reversed);
  EXPECT_EQ(reversed->nics[reversed->nics_of_gpu[0][0]].name, "mlx5_7");
  EXPECT_FALSE(reversed->warnings.empty());
  const auto duplicated = load_nccl_topo(folder_ / "rtx4090x4-dupnets.xml");
  ASSERT_TRUE(duplicated);
  EXPECT_LE(duplicated->nics.size(), 16U);
  EXPECT_EQ(duplicated->gpus[2].dev, 3);
  const auto cut = load_nccl_topo(folder_ / "h200-truncated.xml");
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message.find(": line "), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
