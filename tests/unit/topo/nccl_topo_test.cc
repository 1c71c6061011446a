#include "solver/topo/nccl_topo.h"

#include <gtest/gtest.h>

#include <algorithm>
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
                const std::string& inside = "", const std::string& busid = "0000:01:00.0") {
  return "<pci busid=\"" + busid +
         "\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
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
    EXPECT_TRUE(topo->gpus[i].gdr);
  }
  for (const TopoNic& nic : topo->nics) {
    EXPECT_DOUBLE_EQ(nic.bytes_per_s, 25e9);
    EXPECT_EQ(topo->devices[nic.device].kind, TopoKind::kNic);
    EXPECT_GE(topo->devices[nic.device].parent, 0);
  }
}

TEST(NcclTopo, SortsGpusByDevice) {
  const std::string text =
      system(gpu("dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\"") +
             gpu("dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\"", "", "0000:02:00.0"));
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
  EXPECT_NE(error_of(system("")).find("no device found"), std::string::npos);
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

TEST(NcclTopo, HoldsToItsLimitsOnDevices) {
  const auto many = [](int count, const std::string& attributes, const std::string& inside) {
    std::string all;
    for (int i = 0; i < count; ++i) {
      all +=
          "<pci busid=\"" + std::to_string(i + 10) + "\" " + attributes + ">" + inside + "</pci>";
    }
    return error_of(system(all));
  };
  const std::string gpu = "<gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"/>";
  EXPECT_EQ(many(64, "", gpu), "loaded");
  EXPECT_NE(many(65, "", gpu).find("more than 64 GPUs"), std::string::npos);
  EXPECT_EQ(many(64, "class=\"0x030200\"", ""), "loaded");
  EXPECT_NE(many(65, "class=\"0x030200\"", "").find("more than 64 GPUs"), std::string::npos);
  EXPECT_NE(many(257, "class=\"0x020000\"", "").find("256 network cards"), std::string::npos);
  EXPECT_NE(many(257, "", "<nic><net dev=\"0\"/></nic>").find("more than 256"), std::string::npos);
  EXPECT_NE(many(1025, "", "").find("more than 1024 PCI elements"), std::string::npos);
}

TEST(NcclTopo, NamesTheFileThatCannotBeRead) {
  const auto topo = load_nccl_topo("/nonexistent/topo.xml");
  ASSERT_FALSE(topo);
  EXPECT_EQ(topo.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(load_nccl_topo("/"));
}

bool has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

TEST(NcclTopo, LeavesOutWhatNcclLeavesOut) {
  const auto topo = parse_nccl_topo(
      system(gpu() + gpu("dev=\"1\" sm=\"80\" gdr=\"1\"", "", "0000:02:00.0") +
             "<pci busid=\"0000:03:00.0\" class=\"0x020000\" link_speed=\"\" link_width=\"0\"><nic>"
             "<net name=\"a\" dev=\"0\" speed=\"100000\"/><net name=\"b\"/></nic></pci>"),
      "t.xml");
  ASSERT_TRUE(topo) << topo.error().message;
  EXPECT_EQ(topo->gpus.size(), 1U);
  EXPECT_EQ(topo->nics.size(), 1U);
  EXPECT_TRUE(has(topo->warnings, "without rank: skipped"));
  EXPECT_TRUE(has(topo->warnings, "<net>: without dev: left out"));
}

TEST(NcclTopo, TakesWhatNcclRefusesWhereItsMeaningIsPlain) {
  // Line breaks inside tags, no numaid, no classes, no dev: what abridged dumps look like.
  const auto topo = parse_nccl_topo(
      "<?xml version=\"1.0\"?><system\n version=\"1\"><cpu arch=\"arm64\">\n"
      "<pci busid=\"000f:01:00.0\" link_speed=\"2.5 GT/s PCIe\" link_width=\"16\">"
      "<gpu dev=\"0\" sm=\"121\" rank=\"0\" mlopart=\"0\"><c2c bw=\"43125\" count=\"8\"/></gpu>"
      "</pci><pci busid=\"0000:01:00.0\" link_speed=\"32.0 GT/s PCIe\" link_width=\"4\"><nic>"
      "<net name=\"a\" speed=\"200000\" latency=\"75.5\" gin=\"1\"/></nic></pci></cpu></system>",
      "t.xml");
  ASSERT_TRUE(topo) << topo.error().message;
  ASSERT_EQ(topo->gpus.size(), 1U);
  EXPECT_DOUBLE_EQ(topo->gpus[0].c2c_bytes_per_s, 345e9);
  EXPECT_DOUBLE_EQ(topo->gpus[0].pcie_bytes_per_s, 3e9);
  EXPECT_EQ(topo->gpus[0].numa, 0);
  EXPECT_TRUE(topo->gpus[0].gdr);
  ASSERT_EQ(topo->nics.size(), 1U);
  EXPECT_DOUBLE_EQ(topo->nics[0].latency_s, 75.5e-6);
  EXPECT_TRUE(has(topo->warnings, "numaid not found"));
  EXPECT_TRUE(has(topo->warnings, "gdr not found"));
  EXPECT_TRUE(has(topo->completed, "numbered in document order"));
}

TEST(NcclTopo, KeepsOneHostAndOneGpuPerPciElement) {
  const auto topo = parse_nccl_topo(
      "<system version=\"1\"><cpu numaid=\"0\" host_hash=\"0x1\" arch=\"arm64\">"
      "<pci busid=\"1\" class=\"0x0302\" link_speed=\"\" link_width=\"0\">"
      "<gpu dev=\"0\" sm=\"100\" rank=\"0\" gdr=\"1\"/><gpu dev=\"1\" sm=\"100\" rank=\"1\" "
      "gdr=\"1\"/></pci></cpu><cpu numaid=\"0\" host_hash=\"0x2\" arch=\"arm64\">"
      "<pci busid=\"2\" class=\"0x0302\" link_speed=\"\" link_width=\"0\">"
      "<gpu dev=\"2\" sm=\"100\" rank=\"2\" gdr=\"1\"/></pci></cpu></system><system/>",
      "t.xml");
  ASSERT_TRUE(topo) << topo.error().message;
  EXPECT_EQ(topo->gpus.size(), 1U);
  EXPECT_EQ(topo->cpus.size(), 1U);
  EXPECT_TRUE(has(topo->warnings, "several in one <pci>"));
  EXPECT_TRUE(has(topo->warnings, "other hosts"));
  EXPECT_TRUE(has(topo->warnings, "second <system>"));
}

TEST(NcclTopo, WarnsOfNvlinksThatCannotBe) {
  const auto pair = [](const std::string& first, const std::string& second) {
    return parse_nccl_topo(
        system(gpu("dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"", first) +
               gpu("dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\"", second, "0000:02:00.0")),
        "t.xml");
  };
  const auto link = [](const std::string& target) {
    return "<nvlink target=\"" + target + "\" count=\"4\" tclass=\"0x030200\"/>";
  };
  const auto joined = pair(link("0000:02:00.0"), link("0000:01:00.0"));
  ASSERT_TRUE(joined);
  EXPECT_TRUE(joined->warnings.size() == 1 && has(joined->warnings, "no NIC"));
  EXPECT_TRUE(has(pair(link("0000:01:00.0"), "")->warnings, "leads to the GPU itself"));
  EXPECT_TRUE(has(pair(link("0000:09:00.0"), "")->warnings, "not in the file"));
  const auto one_way = pair(link("0000:02:00.0"), "");
  EXPECT_TRUE(has(one_way->warnings, "their other end does not list"));
  EXPECT_EQ(one_way->gpus[0].nvlinks, 0U);
  const auto lame =
      pair("<nvlink target=\"fffffff:ff:ff.0\" count=\"12\" tclass=\"0x068000\"/>", "");
  EXPECT_TRUE(has(lame->warnings, "1 of 2 GPUs list no NVLink beside others that do"));
}

TEST(NcclTopo, CompletesSkeletonsByPciClass) {
  const auto skeleton = [](int gpus, const std::string& speed, bool bridge) {
    std::string inside;
    for (int i = 0; i < gpus; ++i) {
      const std::string number = std::to_string(i);
      const std::string link = "link_speed=\"" + speed + "\" link_width=\"16\"";
      inside +=
          bridge ? "<pci busid=\"ffff:ff:0" + number + ".0\" class=\"0x060400\" " + link + ">" : "";
      inside += "<pci busid=\"000" + number + ":00:00.0\" class=\"0x030200\" " + link + "/>";
      inside += "<pci busid=\"010" + number + ":00:00.0\" class=\"0x020700\" " + link + "/>";
      inside += bridge ? "</pci>" : "";
    }
    return *parse_nccl_topo(system(inside), "t.xml");
  };
  const NcclTopo hopper = skeleton(8, "32 GT/s", true);
  ASSERT_EQ(hopper.gpus.size(), 8U);
  EXPECT_EQ(hopper.gpus[7].sm, 90);
  EXPECT_EQ(hopper.gpus[7].nvlinks, 18U);
  EXPECT_TRUE(hopper.nvswitch);
  EXPECT_DOUBLE_EQ(hopper.nics[7].bytes_per_s, 50e9);
  EXPECT_EQ(hopper.completed.size(), 2U);
  const NcclTopo ampere = skeleton(8, "16.0 GT/s PCIe", true);
  EXPECT_EQ(ampere.gpus[0].sm, 80);
  EXPECT_DOUBLE_EQ(ampere.gpus[0].nvlink_bytes_per_s, 240e9);
  EXPECT_DOUBLE_EQ(ampere.nics[0].bytes_per_s, 25e9);
  EXPECT_EQ(skeleton(4, "16 GT/s", true).gpus[0].nvlinks, 0U);
  const NcclTopo flat = skeleton(8, "16 GT/s", false);
  EXPECT_EQ(flat.gpus[0].sm, 70);
  EXPECT_FALSE(flat.nvswitch);
  EXPECT_DOUBLE_EQ(flat.nics[0].bytes_per_s, 12.5e9);
}

TEST(NcclTopo, ReadsFilesWithoutGpusForWhatIsNearWhat) {
  const auto topo = parse_nccl_topo(
      "<system version=\"1\"><cpu numaid=\"1\"><pci busid=\"0000:00:16.0\"/></cpu></system>", "t");
  ASSERT_TRUE(topo) << topo.error().message;
  EXPECT_TRUE(topo->gpus.empty());
  ASSERT_EQ(topo->devices.size(), 1U);
  EXPECT_EQ(topo->devices[0].kind, TopoKind::kUnknown);
  EXPECT_EQ(topo->cpus[0].numa, 1);
  EXPECT_TRUE(has(topo->warnings, "no GPU in the file"));
}

/// Dumps of real machines, when they are at hand.
class RealDumps : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) {
      GTEST_SKIP() << "skipped: no folder " << folder_;
    }
  }
  [[nodiscard]] NcclTopo load(const std::string& name) const {
    const auto topo = load_nccl_topo(folder_ / name);
    EXPECT_TRUE(topo) << topo.error().message;
    return topo.value_or(NcclTopo());
  }
  [[nodiscard]] std::string error(const std::string& name) const {
    const auto topo = load_nccl_topo(folder_ / name);
    EXPECT_FALSE(topo) << name;
    return topo ? "loaded" : topo.error().message;
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
      EXPECT_FALSE(topo->devices.empty());
    } else {
      EXPECT_EQ(topo.error().message.rfind(entry.path().string() + ": line ", 0), 0U);
      EXPECT_GT(topo.error().message.size(), entry.path().string().size() + 30);
    }
  }
  EXPECT_GE(files, 20);
  EXPECT_GE(loaded, 16);
}

TEST_F(RealDumps, RefuseWhatIsNoTopologyOfThisKind) {
  EXPECT_NE(error("azure-ncv4-a100pcie.graph.xml").find("graph dump"), std::string::npos);
  EXPECT_NE(error("a6000-pcie-veth.graph.xml").find("graph dump"), std::string::npos);
  EXPECT_NE(error("vr200-mlopart-fragment.xml").find("fragment"), std::string::npos);
  EXPECT_NE(error("h200-truncated.xml").find("damaged or cut off"), std::string::npos);
  EXPECT_NE(error("rccl-mi300x-8p.xml").find("wrong version 2, 1 needed"), std::string::npos);
  EXPECT_NE(error("rccl-mi100-8p-4nic.xml").find("wrong version 2, 1 needed"), std::string::npos);
}

TEST_F(RealDumps, SumNvlinkRowsWhateverTheirShape) {
  const NcclTopo a100 = load("a100-8gpu-roce-bond.xml");
  ASSERT_EQ(a100.gpus.size(), 8U);
  for (const TopoGpu& gpu : a100.gpus) {
    EXPECT_EQ(gpu.links.size(), 6U);
    EXPECT_DOUBLE_EQ(gpu.nvlink_bytes_per_s, 240e9);
  }
  EXPECT_EQ(a100.nics.size(), 5U);
  EXPECT_TRUE(a100.nvswitch);
  EXPECT_DOUBLE_EQ(load("h800-nvswitch-ib.xml").gpus[0].nvlink_bytes_per_s, 164.8e9);
  EXPECT_DOUBLE_EQ(load("ibm-h100-vm-gen1switch.xml").gpus[0].nvlink_bytes_per_s, 370.8e9);
}

TEST_F(RealDumps, CompleteTheProvidersSkeletons) {
  const NcclTopo ndv4 = load("azure-ndv4-a100.xml");
  EXPECT_EQ(ndv4.gpus.size(), 8U);
  EXPECT_EQ(ndv4.nics.size(), 8U);
  EXPECT_EQ(ndv4.cpus.size(), 4U);
  EXPECT_EQ(ndv4.gpus[0].sm, 80);
  EXPECT_EQ(load("azure-ndv5-h100.xml").gpus[0].nvlinks, 18U);
  const NcclTopo ndv2 = load("azure-ndv2-v100.xml");
  EXPECT_EQ(ndv2.gpus[0].sm, 70);
  EXPECT_EQ(ndv2.nics.size(), 1U);
  const NcclTopo p4d = load("aws-p4d-a100.xml");
  EXPECT_EQ(p4d.gpus.size(), 8U);
  EXPECT_EQ(p4d.nics.size(), 4U);
  EXPECT_EQ(p4d.gpus[0].busid, "0000:10:1c.0");
  EXPECT_DOUBLE_EQ(p4d.nics[0].bytes_per_s, 12.5e9);
  EXPECT_EQ(p4d.completed.size(), 2U);
}

TEST_F(RealDumps, KeepUnknownWhatIsUnknowable) {
  const NcclTopo p5 = load("aws-p5-h100-2023.xml");
  EXPECT_TRUE(p5.gpus.empty());
  EXPECT_EQ(std::count_if(p5.devices.begin(), p5.devices.end(),
                          [](const TopoDevice& one) { return one.kind == TopoKind::kUnknown; }),
            32);
  const NcclTopo g5 = load("aws-g5-a10g.xml");
  EXPECT_EQ(g5.devices.size(), 9U);
  EXPECT_EQ(g5.devices[8].cpu, 1U);
  EXPECT_TRUE(has(g5.warnings, "no GPU in the file"));
}

TEST_F(RealDumps, WarnOfOddities) {
  EXPECT_TRUE(has(load("aws-p5-h100-rejected.xml").warnings, "NVSwitch GPU without NVLink"));
  EXPECT_TRUE(has(load("azure-ncv4-a100pcie.xml").warnings, "leads to the GPU itself"));
  EXPECT_TRUE(has(load("ibm-h100-vm-gen1switch.xml").warnings, "virtual bridges"));
  EXPECT_TRUE(load("h800-nvswitch-ib.xml").warnings.empty());
  EXPECT_TRUE(load("a100-8gpu-roce-bond.xml").warnings.empty());
}

TEST_F(RealDumps, KeepDevicesApartFromRanks) {
  const NcclTopo l20 = load("l20-pcie-16gpu.xml");
  ASSERT_EQ(l20.gpus.size(), 16U);
  EXPECT_EQ(l20.gpus[4].dev, 4);
  EXPECT_EQ(l20.gpus[4].rank, 2);
  EXPECT_EQ(load("rtx4090x4-dupnets.xml").gpus[2].dev, 3);
  const NcclTopo gb10 = load("gb10-spark-abridged.xml");
  EXPECT_DOUBLE_EQ(gb10.gpus[0].c2c_bytes_per_s, 345e9);
  EXPECT_EQ(gb10.nics.size(), 2U);
  const NcclTopo ncv4 = load("azure-ncv4-a100pcie.xml");
  EXPECT_DOUBLE_EQ(ncv4.gpus[0].pcie_bytes_per_s, 12e9);
  EXPECT_EQ(ncv4.devices[ncv4.nics[0].device].kind, TopoKind::kVirtualNic);
}

}  // namespace
}  // namespace tapas::solver
