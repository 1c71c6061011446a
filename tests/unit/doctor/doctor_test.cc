#include "agent/doctor/checks.h"
#include "agent/rank/observer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tapas::agent::doctor {
namespace {

namespace fs = std::filesystem;

/// A folder in memory, where ranks meet the agent.
class Folder {
 public:
  Folder() {
    std::string pattern = "/dev/shm/tapas-doctor-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path() const { return path_; }
  void touch(const std::string& name) const { std::ofstream(path_ + "/" + name) << "x"; }

 private:
  std::string path_;
};

AgentConfig config_in(const Folder& folder) {
  AgentConfig config;
  config.node = "node-0";
  config.rank_dir = folder.path();
  return config;
}

health::PciDevice pci(health::PciKind kind, unsigned vendor, const std::string& name) {
  health::PciDevice device;
  device.kind = kind;
  device.vendor = vendor;
  device.name = name;
  return device;
}

TEST(Doctor, TheRanksFolderMustBeThereInMemoryAndWritable) {
  const Folder folder;
  AgentConfig config = config_in(folder);
  EXPECT_EQ(check_rank_dir(config).state, State::kGood) << check_rank_dir(config).seen;

  config.rank_dir = folder.path() + "/not-there";
  const Check missing = check_rank_dir(config);
  EXPECT_EQ(missing.state, State::kBroken);
  EXPECT_NE(missing.seen.find("not-there: No such file"), std::string::npos) << missing.seen;
  EXPECT_FALSE(missing.advice.empty());

  config.rank_dir = "/proc/self";
  EXPECT_EQ(check_rank_dir(config).state, State::kBroken);
}

TEST(Doctor, RanksAreCountedAndStrangersExplained) {
  const Folder folder;
  const AgentConfig config = config_in(folder);
  const Check none = check_ranks(config);
  EXPECT_EQ(none.state, State::kNote);
  EXPECT_NE(none.advice.find("TAPAS_RANK_DIR=" + folder.path()), std::string::npos) << none.advice;

  const std::string path = folder.path();
  tapas_rank_options options = {};
  options.abi = TAPAS_RANK_ABI;
  options.job = "gpt";
  options.node = "node-0";
  options.session = 1;
  options.dir = path.c_str();
  tapas_rank* ours = nullptr;
  ASSERT_EQ(tapas_rank_open(&options, &ours), 0);
  folder.touch("unrelated");
  const Check one = check_ranks(config);
  EXPECT_EQ(one.state, State::kGood) << one.seen;
  EXPECT_EQ(one.seen, "1 of job gpt");
  tapas_rank* observer = nullptr;
  ASSERT_EQ(open_rank(&options, kObserverPrefix, &observer), 0);
  EXPECT_EQ(check_ranks(config).seen, "1 of job gpt") << "the same rank, seen by NCCL's plugin";
  tapas_rank_close(observer);

  options.node = "node-1";
  options.rank = 1;
  tapas_rank* strange = nullptr;
  ASSERT_EQ(tapas_rank_open(&options, &strange), 0);
  const Check other = check_ranks(config);
  EXPECT_EQ(other.state, State::kNote);
  EXPECT_NE(other.seen.find("node-1"), std::string::npos) << other.seen;
  EXPECT_NE(other.advice.find("\"node-0\""), std::string::npos) << other.advice;
  tapas_rank_close(strange);
  tapas_rank_close(ours);
  EXPECT_EQ(check_ranks(config).state, State::kNote) << "nobody lives any more";
}

TEST(Doctor, GpusWithoutADriverAreTold) {
  const Folder dev;
  health::NodeHealth node;
  EXPECT_EQ(check_gpus(node, dev.path()).state, State::kGood) << "a node without GPUs is fine";
  node.pci = {pci(health::PciKind::kGpu, 0x10de, "0000:17:00.0"),
              pci(health::PciKind::kGpu, 0x10de, "0000:65:00.0")};
  const Check no_driver = check_gpus(node, dev.path());
  EXPECT_EQ(no_driver.state, State::kNote);
  EXPECT_NE(no_driver.seen.find("no " + dev.path() + "/nvidiactl"), std::string::npos);
  dev.touch("nvidiactl");
  dev.touch("nvidia0");
  EXPECT_EQ(check_gpus(node, dev.path()).seen, "2 of NVIDIA on the PCI bus, the driver has 1");
  dev.touch("nvidia1");
  EXPECT_EQ(check_gpus(node, dev.path()).state, State::kGood);
}

TEST(Doctor, RdmaCardsWithoutAnRdmaDeviceAreTold) {
  health::NodeHealth node;
  EXPECT_EQ(check_rdma(node).state, State::kGood);
  node.pci = {pci(health::PciKind::kNic, 0x15b3, "0000:18:00.0"),
              pci(health::PciKind::kNic, 0x15b3, "0000:19:00.0"),
              pci(health::PciKind::kNic, 0x8086, "0000:1a:00.0")};
  node.ports.resize(1);
  node.ports[0].pci = "0000:18:00.0";
  const Check one = check_rdma(node);
  EXPECT_EQ(one.state, State::kNote);
  EXPECT_EQ(one.seen, "no RDMA device at 0000:19:00.0");
}

TEST(Doctor, AKernelWithoutPressureIsTold) {
  health::NodeHealth node;
  EXPECT_EQ(check_pressure(node).state, State::kNote);
  node.pressures.resize(2);
  EXPECT_EQ(check_pressure(node).state, State::kGood);
}

TEST(Doctor, NobodyAtNcclsPortIsNoFault) {
  using namespace std::chrono_literals;
  const Check nobody = check_nccl("127.0.0.1:1", 1000ms);
  EXPECT_EQ(nobody.state, State::kNote);
  EXPECT_NE(nobody.seen.find("127.0.0.1:1"), std::string::npos) << nobody.seen;
  EXPECT_EQ(check_nccl("no port here", 1000ms).state, State::kNote);
}

}  // namespace
}  // namespace tapas::agent::doctor
