#include "agent/health/node_codec.h"

#include "agent/health/report.h"
#include "sys_fixture.h"

#include <random>

namespace tapas::agent::health {
namespace {

/// A reading with something in every field.
NodeHealth full_node() {
  const RoceNode fixture;
  fixture.write(fixture.net + "/speed", "-1");
  NodeHealth node = fixture.read();
  Gpu gpu;
  gpu.index = 3;
  gpu.uuid = "GPU-1";
  gpu.model = "A100";
  gpu.sm_mhz = 1410;
  gpu.sm_max_mhz = 1411;
  gpu.memory_mhz = 1512;
  gpu.memory_max_mhz = 1513;
  gpu.throttle_bits = 0x8000000000000041;
  gpu.temperature_c = -4;
  gpu.to_slowdown_c = 99;
  gpu.power_mw = 5;
  gpu.power_limit_mw = 6;
  gpu.ecc = true;
  gpu.repair_pending = true;
  gpu.repair_failed = false;
  gpu.nvlinks = {{0, true}, {2, false}};
  gpu.now = {16, 8U};
  gpu.max = {32, 16U};
  gpu.mig = true;
  gpu.mig_uuids = {"MIG-1", ""};
  node.pci[0].gpu = gpu;
  node.pci[1].lost = "lost";
  node.driver = "570";
  node.gaps.push_back({"what", std::string("w\0hy", 4)});
  return node;
}

std::string shown(const NodeHealth& node) {
  Report report;
  report.node = node;
  return to_json(report);
}

TEST(NodeCodec, KeepsEverything) {
  const NodeHealth node = full_node();
  const auto copy = decode(encode(node));
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(shown(*copy), shown(node));
  EXPECT_EQ(encode(*copy), encode(node));
  ASSERT_EQ(copy->pci.size(), 2U);
  EXPECT_EQ(copy->pci[0].read_at, node.pci[0].read_at);
  EXPECT_EQ(copy->pci[0].identity, "10de:20b0");
  EXPECT_EQ(copy->pci[1].lost, "lost");
  EXPECT_EQ(copy->pci[0].gpu->throttle_bits, 0x8000000000000041U);
}

TEST(NodeCodec, KeepsNothingKnown) {
  const auto copy = decode(encode({}));
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(shown(*copy), shown({}));
}

TEST(NodeCodec, RefusesWhatIsCutOffOrHasMore) {
  const std::string bytes = encode(full_node());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(std::string_view(bytes).substr(0, size))) << size;
  }
  const auto more = decode(bytes + "x");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            fmt::format("sent {} bytes that are no reading", bytes.size() + 1));
}

/// Sanitizers see what a damaged reading does.
TEST(NodeCodec, SurvivesDamage) {
  const std::string bytes = encode(full_node());
  std::mt19937 random(7);
  std::size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 3; ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (const auto node = decode(damaged)) {
      EXPECT_EQ(encode(*node).size(), damaged.size());
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace tapas::agent::health
