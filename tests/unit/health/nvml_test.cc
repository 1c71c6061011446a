// NVML as the fake library in this folder plays it, opened with dlopen in child processes as in the
// real program. No real driver is involved.
#include "agent/health/nvml.h"

#include "agent/health/look.h"
#include "sys_fixture.h"

#include <cstdint>
#include <cstdlib>

namespace tapas::agent::health {
namespace {

using namespace std::chrono_literals;

constexpr const char* kNew = TAPAS_FAKE_NVML_DIR "/new/libnvidia-ml.so.1";
constexpr const char* kOld = TAPAS_FAKE_NVML_DIR "/old/libnvidia-ml.so.1";

constexpr auto kEnough = 5s;  // For /sys to be read while NVML hangs.

Report look_at(const SysFixture& fixture, const char* scenario, const char* library = kNew,
               std::chrono::milliseconds timeout = 60s) {
  ::setenv("TAPAS_FAKE_NVML", scenario, 1);
  LookOptions options;
  options.roots = {fixture.path("sys"), fixture.path("proc")};
  options.nvml = library;
  options.timeout = timeout;
  options.interval = 10ms;
  Report report;
  const auto looked = look(options, [&](const Report& shown) {
    report = shown;
    return false;
  });
  EXPECT_TRUE(looked) << looked.error().message;
  return report;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;
Pairs kinds(const Report& report) {
  Pairs kinds;
  for (const Finding& finding : report.findings) {
    kinds.emplace_back(finding.device, finding.kind);
    EXPECT_EQ(finding.text.find(finding.device), 0U) << finding.text;
  }
  return kinds;
}

TEST(Nvml, TellsOfEightHealthyH100) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "");
  EXPECT_EQ(kinds(report), Pairs{});
  EXPECT_EQ(report.node.driver, "570.86.15");
  ASSERT_EQ(report.node.pci.size(), 8U);
  for (unsigned i = 0; i < 8; ++i) {
    const PciDevice& device = report.node.pci[i];
    ASSERT_TRUE(device.gpu) << device.name;
    EXPECT_EQ(device.gaps.size(), 0U) << device.gaps.front().what << device.gaps.front().why;
    const Gpu& gpu = *device.gpu;
    EXPECT_EQ(gpu.index, i);
    EXPECT_EQ(gpu.uuid, fmt::format("GPU-00000000-1111-2222-3333-00000000000{}", i));
    EXPECT_EQ(gpu.model, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(gpu.sm_mhz, 1755U);
    EXPECT_EQ(gpu.sm_max_mhz, 1980U);
    EXPECT_EQ(gpu.memory_mhz, 2619U);
    EXPECT_EQ(gpu.memory_max_mhz, 2619U);
    EXPECT_EQ(gpu.throttle_bits, 0U);
    EXPECT_EQ(gpu.temperature_c, 45);
    EXPECT_EQ(gpu.to_slowdown_c, 44);  // 42 until its own limit, and it slows down 2 beyond.
    EXPECT_EQ(gpu.power_mw, 512345U);
    EXPECT_EQ(gpu.power_limit_mw, 700000U);
    EXPECT_EQ(gpu.ecc, true);
    EXPECT_EQ(device.counters.at("ecc_corrected"), 0U);
    EXPECT_EQ(device.counters.at("ecc_uncorrected"), 0U);
    EXPECT_EQ(gpu.repair_pending, false);
    EXPECT_EQ(gpu.repair_failed, false);
    ASSERT_EQ(gpu.nvlinks.size(), 18U);
    EXPECT_EQ(gpu.nvlinks[17].link, 17U);
    EXPECT_TRUE(gpu.nvlinks[17].active);
    EXPECT_EQ(device.counters.at("nvlink17_crc_data"), 0U);
    EXPECT_EQ(report.rates.devices.at(device.name).per_s("nvlink0_replay"), 0);
    EXPECT_EQ(gpu.now.gt_per_s, 32);
    EXPECT_EQ(gpu.now.lanes, 16U);
    EXPECT_EQ(gpu.mig, false);
    EXPECT_TRUE(gpu.mig_uuids.empty());
  }
}

TEST(Nvml, TellsOfAnA100ThatThrottlesByHeat) {
  const RoceNode fixture;
  const Report report =
      look_at(fixture, "a100=1 gpus=1 bus=0x17 throttle=0x48 temperature=96 slowdown=95 sm=210");
  EXPECT_EQ(kinds(report), (Pairs{{"0000:17:00.0", "throttled"}, {"0000:17:00.0", "hot"}}));
  EXPECT_EQ(report.findings[0].text,
            "0000:17:00.0 (GPU 0) is slowed down to 210 of 1980 MHz by the hardware's heat limit: "
            "look at cooling and air flow");
  const PciDevice& device = report.node.pci[0];
  EXPECT_EQ(device.gpu->to_slowdown_c, -1);
  EXPECT_EQ(device.gpu->nvlinks.size(), 12U);
  EXPECT_TRUE(device.gaps.empty());  // Not for links that the model does not have, either.
}

TEST(Nvml, SaysThatAGpuHasNoNvLinks) {
  const InfinibandNode fixture;
  const Report report = look_at(fixture, "gpus=1 links=0");
  EXPECT_EQ(kinds(report), Pairs{});
  const PciDevice& device = report.node.pci[0];
  EXPECT_TRUE(device.gpu->nvlinks.empty());
  ASSERT_EQ(device.gaps.size(), 1U);
  EXPECT_EQ(why(device.gaps, "nvlinks"), "nvmlDeviceGetNvLinkState: Not Supported");
}

TEST(Nvml, TellsFaultsFromWhatIsNoFault) {
  const HgxNode fixture;
  const Report report = look_at(fixture,
                                "throttle.0=0x1 throttle.1=0x4 throttle.2=0x2 throttle.3=0x10 "
                                "throttle.4=0x20 throttle.5=0x88 throttle.6=0x8 throttle.7=0x100");
  EXPECT_EQ(kinds(report), (Pairs{{"0000:1f:00.0", "throttled"},
                                  {"0000:20:00.0", "throttled"},
                                  {"0000:21:00.0", "throttled"}}));
  EXPECT_NE(report.findings[0].text.find("the driver's heat limit"), std::string::npos);
  EXPECT_NE(report.findings[1].text.find("by the power brake: "), std::string::npos);
  EXPECT_NE(report.findings[2].text.find("by the hardware's slowdown"), std::string::npos);
}

TEST(Nvml, TellsOfOneNvLinkThatIsDown) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "links_down.3=0x20");
  ASSERT_EQ(kinds(report), (Pairs{{"0000:1e:00.0", "nvlink_down"}}));
  EXPECT_EQ(report.findings[0].text.find("0000:1e:00.0 (GPU 3) has NVLink 5 of 18 down: "), 0U);
  const PciDevice& device = report.node.pci[3];
  EXPECT_FALSE(device.gpu->nvlinks[5].active);
  EXPECT_EQ(device.counters.count("nvlink5_replay"), 0U);  // Unknown, as it is not up.
  EXPECT_EQ(device.counters.count("nvlink4_replay"), 1U);
}

TEST(Nvml, TellsOfAGpuWithoutAnyLinkWhereItsSiblingsHaveThem) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "links_down.7=0x3ffff");
  EXPECT_EQ(kinds(report), (Pairs{{"0000:22:00.0", "nvlink_down"}}));
}

TEST(Nvml, TakesLinksThatNoGpuOfAModelHasForNotWired) {
  const HgxNode fixture;
  EXPECT_EQ(kinds(look_at(fixture, "links_down=0x30000")), Pairs{});
  EXPECT_EQ(kinds(look_at(fixture, "links_down=0x3ffff")), Pairs{});
  // One GPU alone has no siblings but its own links.
  EXPECT_EQ(kinds(look_at(InfinibandNode(), "gpus=1 links_down=0x30000")),
            (Pairs{{"0000:1b:00.0", "nvlink_down"}}));
  EXPECT_EQ(kinds(look_at(InfinibandNode(), "gpus=1 links_down=0x3ffff")), Pairs{});
}

TEST(Nvml, CountsNoGpuAsSiblingWhoseLinksAreUnknownOrNotUsed) {
  const HgxNode fixture;
  const Report report = look_at(fixture,
                                "gpus=3 links_down.1=8 mig.2=1 links_down.2=0x3ffff "
                                "fail.nvmlDeviceGetNvLinkState.0=4");
  EXPECT_EQ(kinds(report), (Pairs{{"0000:1c:00.0", "nvlink_down"}}));
  const PciDevice& unknown = report.node.pci[0];
  EXPECT_TRUE(unknown.gpu->nvlinks.empty());
  EXPECT_EQ(why(unknown.gaps, "nvlink3"), "nvmlDeviceGetNvLinkState: Insufficient Permissions");
  EXPECT_EQ(unknown.counters.count("nvlink3_replay"), 0U);
  // But a link that is up there is wired.
  EXPECT_EQ(kinds(look_at(fixture, "gpus=3 links_down.0=8 links_down.1=8 mig.2=1")),
            (Pairs{{"0000:1b:00.0", "nvlink_down"}, {"0000:1c:00.0", "nvlink_down"}}));
}

TEST(Nvml, TellsOfNvLinkErrorsThatGrow) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "errors_on_link.2=7");
  ASSERT_EQ(kinds(report), (Pairs{{"0000:1d:00.0", "nvlink_errors"}}));
  EXPECT_NE(report.findings[0].text.find("(nvlink7_crc_flit by "), std::string::npos)
      << report.findings[0].text;
}

TEST(Nvml, TellsOfMigInstances) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "mig.2=1 links_down.2=0x3ffff");
  EXPECT_EQ(kinds(report), Pairs{});  // Links are not used with MIG.
  const Gpu& gpu = *report.node.pci[2].gpu;
  EXPECT_EQ(gpu.mig, true);
  EXPECT_EQ(gpu.uuid, "GPU-00000000-1111-2222-3333-000000000002");
  EXPECT_EQ(gpu.mig_uuids, (std::vector<std::string>{"MIG-00000000-1111-2222-3333-000000000002",
                                                     "MIG-00000002-1111-2222-3333-000000000002",
                                                     "MIG-00000004-1111-2222-3333-000000000002",
                                                     "MIG-00000006-1111-2222-3333-000000000002"}));
  EXPECT_TRUE(report.node.pci[2].gaps.empty());  // Not for places without an instance, either.
  EXPECT_EQ(report.node.pci[3].gpu->mig, false);
}

TEST(Nvml, HasAGapAndNoZeroWhereEccIsNotSupported) {
  const HgxNode fixture;
  const Report report = look_at(fixture,
                                "fail.nvmlDeviceGetEccMode.1=3 "
                                "fail.nvmlDeviceGetTotalEccErrors.1=3 ecc.0=0 "
                                "fail.nvmlDeviceGetTotalEccErrors.0=3");
  EXPECT_EQ(kinds(report), Pairs{});
  const PciDevice& without = report.node.pci[1];
  EXPECT_EQ(without.gpu->ecc, std::nullopt);
  EXPECT_EQ(without.counters.count("ecc_uncorrected"), 0U);
  EXPECT_EQ(why(without.gaps, "ecc_uncorrected"), "nvmlDeviceGetTotalEccErrors: Not Supported");
  EXPECT_EQ(why(without.gaps, "ecc"), "nvmlDeviceGetEccMode: Not Supported");
  EXPECT_EQ(report.node.pci[0].gpu->ecc, false);
  EXPECT_EQ(report.node.pci[0].counters.count("ecc_corrected"), 0U);
}

TEST(Nvml, TellsOfMemoryThatIsBad) {
  const HgxNode fixture;
  const Report report =
      look_at(fixture, "ecc_corrected.1=12 ecc_uncorrected.2=3 rows_pending.3=1 rows_failed.4=1");
  EXPECT_EQ(kinds(report), (Pairs{{"0000:1d:00.0", "ecc_uncorrected"},
                                  {"0000:1e:00.0", "repair_pending"},
                                  {"0000:1f:00.0", "repair_failed"}}));
  EXPECT_EQ(report.node.pci[1].counters.at("ecc_corrected"), 12U);
}

TEST(Nvml, ReadsAnOldDriverAndSaysWhatItLacks) {
  const RoceNode fixture;
  const Report report =
      look_at(fixture, "a100=1 gpus=1 bus=0x17 throttle=0x20 pages_pending=1", kOld);
  EXPECT_EQ(kinds(report),
            (Pairs{{"0000:17:00.0", "throttled"}, {"0000:17:00.0", "repair_pending"}}));
  const PciDevice& device = report.node.pci[0];
  ASSERT_TRUE(device.gpu);
  EXPECT_EQ(device.gpu->temperature_c, 45);
  EXPECT_EQ(device.gpu->to_slowdown_c, 50);
  EXPECT_EQ(device.gpu->mig, std::nullopt);
  EXPECT_EQ(why(device.gaps, "mig"), "this driver has no nvmlDeviceGetMigMode");
  EXPECT_EQ(device.gpu->repair_failed, std::nullopt);
  EXPECT_EQ(why(device.gaps, "repair_failed"), "this driver has no nvmlDeviceGetRemappedRows");
}

TEST(Nvml, FillsInTheLinkThatSysfsDoesNotTell) {
  const HgxNode fixture;
  for (const char* file :
       {"current_link_speed", "current_link_width", "max_link_speed", "max_link_width"}) {
    fixture.remove(fixture.gpus[0] + "/" + file);
  }
  const Report report = look_at(fixture, "lanes=8");
  // NVML says so of all, but where sysfs knows better it is sysfs that counts.
  EXPECT_EQ(kinds(report), (Pairs{{"0000:1b:00.0", "pcie_width"}}));
  EXPECT_EQ(report.node.pci[0].now.gt_per_s, 32);
  EXPECT_EQ(report.node.pci[1].now.lanes, 16U);
  EXPECT_EQ(report.node.pci[1].gpu->now.lanes, 8U);
}

TEST(Nvml, TellsOfAGpuThatIsLost) {
  const HgxNode fixture;
  const Report in_use = look_at(fixture, "fail.nvmlDeviceGetClockInfo.6=15");
  ASSERT_EQ(kinds(in_use), (Pairs{{"0000:21:00.0", "lost"}}));
  EXPECT_NE(in_use.findings[0].text.find("nvmlDeviceGetClockInfo: GPU is lost"), std::string::npos);

  const Report at_start = look_at(fixture, "fail.nvmlDeviceGetHandleByIndex_v2.6=15");
  EXPECT_EQ(kinds(at_start), (Pairs{{"nvml/6", "lost"}}));
  EXPECT_FALSE(at_start.node.pci[6].gpu);
  EXPECT_EQ(why(at_start.node.pci[6].gaps, "nvml"), "NVML does not list this GPU");
}

TEST(Nvml, HasAGapForAGpuThatMayNotBeRead) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "fail.nvmlDeviceGetHandleByIndex_v2.6=4");
  EXPECT_EQ(kinds(report), Pairs{});
  ASSERT_EQ(report.node.pci.size(), 9U);
  EXPECT_EQ(report.node.pci[8].name, "nvml/6");
  EXPECT_EQ(report.node.pci[8].gpu->temperature_c, std::nullopt);
}

TEST(Nvml, ShowsGpusThatSysfsDoesNot) {
  const SysFixture fixture;
  const Report report = look_at(fixture, "gpus=2 temperature.1=50");
  ASSERT_EQ(report.node.pci.size(), 2U);
  EXPECT_EQ(report.node.pci[1].name, "0000:1c:00.0");
  EXPECT_EQ(report.node.pci[1].gpu->temperature_c, 50);
  EXPECT_EQ(report.node.pci[1].now.lanes, 16U);
  EXPECT_EQ(why(report.node.pci[1].gaps, "sysfs"), "this GPU was not seen in /sys");
  EXPECT_EQ(kinds(report), Pairs{});
}

TEST(Nvml, IsAGapWhenItIsNotThere) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "", "/nowhere/libnvidia-ml.so.1");
  EXPECT_EQ(kinds(report), Pairs{});
  EXPECT_NE(why(report.node.gaps, "nvml").find("/nowhere/libnvidia-ml.so.1: cannot open"),
            std::string::npos);
  ASSERT_EQ(report.node.pci.size(), 8U);
  EXPECT_TRUE(report.node.pci[0].gaps.empty());  // Once for the node is enough.
  EXPECT_EQ(why(look_at(fixture, "fail.nvmlInit_v2=9").node.gaps, "nvml"),
            "nvmlInit_v2: Driver Not Loaded");
}

TEST(Nvml, IsNotBelievedWhenItLies) {
  const HgxNode fixture;
  const Report report = look_at(fixture,
                                "gpus=10000 endless_text=1 sm=0xffffffff generation=99 lanes=63 "
                                "temperature=-100000 ecc=2 mig=7 field_type=0 margin=5000000");
  EXPECT_EQ(why(report.node.gaps, "nvml"),
            "says there are 10000 GPUs, only the first 256 were asked for");
  EXPECT_LE(report.node.pci.size(), kMaxDevices);
  const PciDevice& device = report.node.pci[0];
  EXPECT_EQ(device.gpu->uuid, std::nullopt);
  EXPECT_EQ(why(device.gaps, "uuid"), "nvmlDeviceGetUUID gave a text without an end");
  EXPECT_EQ(device.gpu->sm_mhz, std::nullopt);
  EXPECT_EQ(why(device.gaps, "sm_mhz"), "says \"4294967295\"");
  EXPECT_EQ(device.gpu->temperature_c, std::nullopt);
  EXPECT_EQ(device.gpu->to_slowdown_c, std::nullopt);
  EXPECT_EQ(why(device.gaps, "to_slowdown_c"), "is of a type 0 that is not known here");
  EXPECT_EQ(device.gpu->ecc, std::nullopt);
  EXPECT_EQ(device.gpu->mig, std::nullopt);
  EXPECT_EQ(device.gpu->now.gt_per_s, std::nullopt);
  EXPECT_EQ(device.gpu->now.lanes, std::nullopt);
  EXPECT_EQ(why(device.gaps, "pcie"), "says \"99\"");
  EXPECT_EQ(why(look_at(fixture, "mig=1 mig_places=5000").node.pci[0].gaps, "mig_uuids"),
            "says \"5000\"");
}

TEST(Nvml, MayHangAtItsStart) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "hang.nvmlInit_v2=1", kNew, kEnough);
  ASSERT_EQ(kinds(report), (Pairs{{"nvml", "no_answer"}}));
  EXPECT_EQ(report.findings[0].text.find("nvml did not answer within 5 s, at nvmlInit_v2: "), 0U)
      << report.findings[0].text;
  EXPECT_EQ(why(report.node.gaps, "nvml"), "did not answer within 5 s, at nvmlInit_v2");
  EXPECT_EQ(report.node.pci.size(), 8U);  // What /sys tells is there.
}

TEST(Nvml, MayHangInACallForOneGpu) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "hang.nvmlDeviceGetPowerUsage.5=1", kNew, kEnough);
  ASSERT_EQ(kinds(report), (Pairs{{"nvml", "no_answer"}}));
  EXPECT_NE(report.findings[0].text.find("at nvmlDeviceGetPowerUsage of GPU 5"), std::string::npos);
}

TEST(Nvml, MayCrash) {
  const HgxNode fixture;
  const Report report = look_at(fixture, "crash.nvmlDeviceGetUUID.4=1");
  ASSERT_EQ(kinds(report), (Pairs{{"nvml", "crashed"}}));
  EXPECT_EQ(report.findings[0].text.find(
                "nvml crashed (Segmentation fault) at nvmlDeviceGetUUID of GPU 4: "),
            0U)
      << report.findings[0].text;
  EXPECT_EQ(report.node.pci.size(), 8U);
}

/// Counts how often the fake library is started while this lives.
class Starts {
 public:
  Starts() { ::setenv("TAPAS_FAKE_NVML_STARTS", path_.c_str(), 1); }
  ~Starts() { ::unsetenv("TAPAS_FAKE_NVML_STARTS"); }
  Starts(const Starts&) = delete;
  Starts& operator=(const Starts&) = delete;
  [[nodiscard]] std::uintmax_t count() const { return std::filesystem::file_size(path_); }

 private:
  TemporaryFolder folder_;
  std::string path_ = folder_.file("starts");
};

TEST(Nvml, IsNotAskedAgainWhenItDidNotComeBack) {
  const HgxNode fixture;
  const Starts starts;
  look_at(fixture, "gpus=1");
  EXPECT_EQ(starts.count(), 2U);
  look_at(fixture, "crash.nvmlDeviceGetUUID=1");
  EXPECT_EQ(starts.count(), 3U);
}

TEST(Nvml, IsNoSignThatGpusAreGoneWhenItCrashesLater) {
  const SysFixture fixture;
  const Starts starts;
  const Report report = look_at(fixture, "gpus=2 good_starts=1");
  EXPECT_EQ(starts.count(), 2U);
  EXPECT_EQ(kinds(report), (Pairs{{"nvml", "crashed"}}));
  EXPECT_TRUE(report.node.pci.empty());
}

}  // namespace
}  // namespace tapas::agent::health
