// Both forms of the report, and the program that prints them.
#include "agent/health/report.h"

#include "base/json/json.h"
#include "sys_fixture.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace tapas::agent::health {
namespace {

Report report_of(const SysFixture& fixture) {
  const NodeHealth before = fixture.read();
  Report report;
  report.node = fixture.read();
  report.rates = rates_between(before, report.node);
  report.findings = findings(report.node, report.rates);
  return report;
}

TEST(HealthReport, IsJsonWithNullForWhatIsUnknown) {
  const RoceNode fixture;
  fixture.write(fixture.nic + "/current_link_width", "8");
  fixture.write(fixture.net + "/speed", "-1");
  fixture.remove(fixture.port + "/hw_counters");
  const auto value = json::parse(to_json(report_of(fixture)));
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ((*value)["schema"], "tapas.health/1");
  const json::Value& gpu = (*value)["pci"][0];
  EXPECT_EQ(gpu["kind"], "gpu");
  EXPECT_EQ(gpu["vendor"], "0x10de");
  EXPECT_EQ(gpu["link"]["gt_per_s"], 16.0);
  EXPECT_EQ(gpu["per_s"]["aer_correctable"], 0.0);
  const json::Value& port = (*value)["ports"][0];
  EXPECT_EQ(port["bits_per_s"], 100e9);
  EXPECT_EQ(port["counters"]["port_rcv_data"], 81234567);
  EXPECT_FALSE(port["counters"].contains("out_of_sequence"));
  EXPECT_EQ(port["gaps"][0]["what"], "hw_counters");
  const json::Value& net = (*value)["nets"][0];
  EXPECT_TRUE(net["bits_per_s"].is_null());
  EXPECT_EQ(net["gaps"][0]["why"], "says \"-1\"");
  EXPECT_EQ((*value)["pressures"][0]["some_ratio"], 0.075);
  ASSERT_EQ((*value)["findings"].size(), 1U);
  EXPECT_EQ((*value)["findings"][0]["kind"], "pcie_width");
  EXPECT_EQ((*value)["findings"][0]["device"], "0000:18:00.0");
}

/// Keys that are names of counters are the kernel's, not ours.
void expect_documented(const json::Value& value, const std::string& text) {
  if (!value.is_structured()) {
    return;
  }
  for (const auto& [key, child] : value.items()) {
    if (value.is_object()) {
      EXPECT_TRUE(text.find("`" + key + "`") != std::string::npos ||
                  text.find("\"" + key + "\"") != std::string::npos)
          << "docs/agent.md does not tell of " << key;
    }
    if (key != "counters" && key != "per_s") {
      expect_documented(child, text);
    }
  }
}

Gpu gpu_with_everything_wrong() {
  Gpu gpu;
  gpu.throttle_bits = 0x3ff;
  gpu.to_slowdown_c = -1;
  gpu.repair_pending = true;
  gpu.repair_failed = true;
  gpu.nvlinks = {{0, true}, {1, false}};
  return gpu;
}

TEST(HealthReport, HasNoFieldOrFindingThatTheDocumentationLacks) {
  std::ifstream in(TAPAS_SOURCE_DIR "/docs/agent.md");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const RoceNode fixture;
  const NodeHealth before = fixture.read();
  fixture.write(fixture.gpu + "/current_link_width", "63");
  fixture.write(fixture.nic + "/current_link_width", "8");
  fixture.write(fixture.nic + "/current_link_speed", "8 GT/s");
  fixture.write(fixture.port + "/state", "1: DOWN");
  fixture.write(fixture.port + "/counters/link_downed", "1");
  fixture.write(fixture.net + "/carrier", "0");
  fixture.write("proc/pressure/cpu", "some avg10=99.00 avg60=0.00 avg300=0.00 total=5000000000");
  Report report;
  report.node = fixture.read();
  report.node.pci[1].gpu = gpu_with_everything_wrong();
  report.node.pci[1].counters["ecc_uncorrected"] = 1;
  report.rates = rates_between(before, report.node);
  report.rates.devices[report.node.pci[1].name].grown["nvlink0_replay"] = 1;
  report.findings = findings(report.node, report.rates);
  report.findings.push_back({"nvml", "no_answer", ""});
  report.findings.push_back({"nvml", "crashed", ""});
  EXPECT_EQ(report.findings.size(), 16U);
  for (const Finding& finding : report.findings) {
    EXPECT_NE(text.find("`" + finding.kind + "`"), std::string::npos)
        << "docs/agent.md does not tell of " << finding.kind;
  }
  const auto value = json::parse(to_json(report));
  ASSERT_TRUE(value) << value.error().message;
  expect_documented(*value, text);
}

TEST(HealthReport, IsATableWithAQuestionMarkForWhatIsUnknown) {
  const RoceNode fixture;
  fixture.write(fixture.port + "/state", "1: DOWN");
  const std::string text = to_text(report_of(fixture));
  EXPECT_NE(text.find("0000:17:00.0  gpu   10de:20b0  16 GT/s x16  16 GT/s x16  16 GT/s x16\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("mlx5_0/1   0000:18:00.0  Ethernet  DOWN   ?     0.000 Gb/s  0.000 Gb/s\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  mlx5_0/1: rate: the port is not active\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  mlx5_0/1 is DOWN, physically LinkUp: "), std::string::npos) << text;
}

TEST(HealthReport, ShowsWhatNvmlTells) {
  const RoceNode fixture;
  Report report;
  report.node = fixture.read();
  Gpu gpu = gpu_with_everything_wrong();
  gpu.model = "A100";
  gpu.sm_mhz = 210;
  gpu.temperature_c = 96;
  gpu.power_mw = 412345;
  gpu.power_limit_mw = 500000;
  gpu.mig = false;
  gpu.throttle_bits = 0x8000000000000041;
  report.node.pci[0].gpu = gpu;
  report.node.pci[0].counters["ecc_uncorrected"] = 3;
  const std::string text = to_text(report);
  EXPECT_NE(text.find("0000:17:00.0  0    A100   210/? MHz  96 C, -1 below slowdown  412/500 W  3 "
                      "uncorrected  1/2 up   off\n"),
            std::string::npos)
      << text;
  const auto value = json::parse(to_json(report));
  ASSERT_TRUE(value) << value.error().message;
  const json::Value& nvml = (*value)["pci"][0]["nvml"];
  EXPECT_EQ(nvml["throttle_reasons"], (json::Value{"gpu_idle", "hw_thermal", "bit_63"}));
  EXPECT_TRUE(nvml["sm_max_mhz"].is_null());
  EXPECT_TRUE(nvml["uuid"].is_null());
  EXPECT_TRUE(nvml["ecc"].is_null());
  EXPECT_EQ(nvml["nvlinks"][1], (json::Value{{"link", 1}, {"active", false}}));
  EXPECT_TRUE((*value)["pci"][1]["nvml"].is_null());
}

TEST(HealthReport, ShowsTrafficInBits) {
  Report report;
  IbPort port;
  port.name = "mlx5_0/1";
  report.node.ports.push_back(port);
  Growth growth;
  growth.interval_s = 2;
  growth.grown = {{"port_rcv_data", 2000000000}, {"port_xmit_data", 125000000}};
  report.rates.devices["mlx5_0/1"] = growth;
  const std::string text = to_text(report);
  EXPECT_NE(text.find("32.000 Gb/s  2.000 Gb/s\n"), std::string::npos) << text;
}

TEST(HealthReport, ShowsCongestionThatGrewButNotWhatStoodStill) {
  Report report;
  IbPort port;
  port.name = "mlx5_0/1";
  report.node.ports.push_back(port);
  Growth growth;
  growth.interval_s = 2;
  growth.grown = {{"np_ecn_marked_roce_packets", 4},
                  {"np_cnp_sent", 3},
                  {"symbol_error", 0},
                  {"port_rcv_packets", 9}};
  report.rates.devices["mlx5_0/1"] = growth;
  const std::string text = to_text(report);
  EXPECT_NE(text.find("mlx5_0/1           np_cnp_sent                 3        1.5\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("mlx5_0/1           np_ecn_marked_roce_packets  4        2\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("symbol_error"), std::string::npos);
  EXPECT_EQ(text.find("port_rcv_packets"), std::string::npos);
}

TEST(HealthReport, LetsNoNameDriveATerminal) {
  Report report;
  NetDevice net;
  net.name = "eth\x1b[2J";
  report.node.nets.push_back(net);
  const std::string text = to_text(report);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("eth?[2J"), std::string::npos);
}

struct Printed {
  int status = -1;
  std::string text;
};
/// The real program's exit status and what it printed, stderr included.
Printed run(const std::string& arguments) {
  Printed printed;
  FILE* pipe =
      ::popen((TAPAS_PROGRAM_DIR "/tapas-agent health " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    return printed;
  }
  char buffer[4096];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    printed.text.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  printed.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return printed;
}

TEST(HealthCommand, ReadsACopiedTree) {
  const InfinibandNode fixture;
  fixture.write(fixture.ports[0] + "/rate", "200 Gb/sec (4X HDR)");
  const Printed json = run("--interval 0.01 -o json --root " + fixture.root());
  EXPECT_EQ(json.status, 0) << json.text;
  const auto value = json::parse(json.text);
  ASSERT_TRUE(value) << json.text;
  EXPECT_EQ((*value)["ports"].size(), 3U);
  EXPECT_EQ((*value)["ports"][1]["per_s"]["link_downed"], 0.0);
  EXPECT_EQ((*value)["findings"][0]["kind"], "port_slow");

  const Printed table = run("--interval 0.01 --root " + fixture.root());
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.text.find("mlx5_0/1 runs at 200 Gb/s"), std::string::npos) << table.text;
}

constexpr const char* kNvml = " --nvml " TAPAS_FAKE_NVML_DIR "/new/libnvidia-ml.so.1 ";

TEST(HealthCommand, AsksNvml) {
  const HgxNode fixture;
  ::setenv("TAPAS_FAKE_NVML", "links_down.3=0x20", 1);
  const Printed json = run("--interval 0.01 -o json --root " + fixture.root() + kNvml);
  EXPECT_EQ(json.status, 0) << json.text;
  const auto value = json::parse(json.text);
  ASSERT_TRUE(value) << json.text;
  EXPECT_EQ((*value)["driver"], "570.86.15");
  EXPECT_EQ((*value)["pci"][7]["nvml"]["index"], 7);
  EXPECT_EQ((*value)["pci"][3]["nvml"]["nvlinks"][5]["active"], false);
  EXPECT_EQ((*value)["pci"][3]["per_s"]["nvlink4_replay"], 0.0);
  ASSERT_EQ((*value)["findings"].size(), 1U);
  EXPECT_EQ((*value)["findings"][0]["kind"], "nvlink_down");
}

TEST(HealthCommand, ComesBackWhenTheDriverDoesNot) {
  const HgxNode fixture;
  ::setenv("TAPAS_FAKE_NVML", "hang.nvmlDeviceGetUUID.2=1", 1);
  const Printed hung = run("--interval 0.01 --timeout 5 --root " + fixture.root() + kNvml);
  EXPECT_EQ(hung.status, 0);
  EXPECT_NE(hung.text.find("nvml did not answer within 5 s, at nvmlDeviceGetUUID of GPU 2"),
            std::string::npos)
      << hung.text;
  EXPECT_NE(hung.text.find("0000:22:00.0  gpu"), std::string::npos) << hung.text;
  ::setenv("TAPAS_FAKE_NVML", "crash.nvmlInit_v2=1", 1);
  const Printed crashed = run("--interval 0.01 -o json --root " + fixture.root() + kNvml);
  EXPECT_EQ(crashed.status, 0);
  const auto value = json::parse(crashed.text);
  ASSERT_TRUE(value) << crashed.text;
  EXPECT_EQ((*value)["findings"][0]["kind"], "crashed");
}

/// More devices than can be read in a millisecond stand for one whose driver hangs.
TEST(HealthCommand, ComesBackWhenTheKernelDoesNot) {
  const SysFixture fixture;
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    fixture.write_all(fmt::format("sys/bus/pci/devices/0000:{:02x}:{:02x}.0", i / 32, i % 32),
                      pci_files("0x020000", "8086:1572", "8.0 GT/s PCIe", "8"));
  }
  const Printed printed = run("--interval 0.01 --timeout 0.001 -o json --root " + fixture.root());
  EXPECT_EQ(printed.status, 0);
  const auto value = json::parse(printed.text);
  ASSERT_TRUE(value) << printed.text;
  EXPECT_EQ((*value)["findings"][0]["device"], "sysfs");
  EXPECT_EQ((*value)["findings"][0]["kind"], "no_answer");
  EXPECT_EQ((*value)["gaps"][0]["what"], "sysfs");
  EXPECT_EQ((*value)["pci"].size(), 0U);
}

TEST(HealthCommand, AsksNoDriverOfThisMachineAboutACopiedTree) {
  const HgxNode fixture;
  const Printed printed = run("--interval 0.01 --root " + fixture.root());
  EXPECT_NE(printed.text.find("nvml: is not asked for a copied tree; --nvml names its library"),
            std::string::npos)
      << printed.text;
}

TEST(HealthCommand, NeedsNoConfigurationAndNoGpu) {
  const SysFixture fixture;
  const Printed printed = run("--interval 0.01 --root " + fixture.root());
  EXPECT_EQ(printed.status, 0);
  EXPECT_NE(printed.text.find("Nothing is wrong in what could be read."), std::string::npos)
      << printed.text;
}

TEST(HealthCommand, FailsWithAStatusForEachReason) {
  const SysFixture fixture;
  const Printed printed = run("--root " + fixture.root() + "/nothing");
  EXPECT_EQ(printed.status, 1);
  EXPECT_NE(printed.text.find(fixture.root() + "/nothing/sys is no folder that can be read; --root "
                                               "takes a folder that holds sys and proc"),
            std::string::npos)
      << printed.text;
  EXPECT_EQ(run("--interval 0.01 --root " + fixture.root() + " > /dev/full").status, 1);
  EXPECT_EQ(run("-o xml").status, 2);
  EXPECT_EQ(run("--interval 0").status, 2);
  EXPECT_EQ(run("--help").status, 0);
}

}  // namespace
}  // namespace tapas::agent::health
