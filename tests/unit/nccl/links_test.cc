#include "agent/nccl/links.h"

#include "agent/nccl/volume.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tapas::nccl {
namespace {

TEST(Links, CountTimeWithSeveralTransfersOnce) {
  Links links;
  const std::size_t to_two = links.find(2);
  const std::size_t to_five = links.find(5);
  EXPECT_EQ(links.find(2), to_two);
  links.add(to_two, 10, 100, 200);
  links.add(to_two, 10, 150, 260);
  links.add(to_two, 10, 110, 190);  // Its end was told late.
  links.add(to_two, 10, 300, 310);
  links.add(to_five, 7, 0, 50);
  std::vector<std::uint64_t> seen;
  links.take([&](std::uint32_t peer, const Links::Sent& sent) {
    seen.insert(seen.end(), {peer, sent.bytes, sent.busy_ns, sent.transfers});
  });
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{2, 40, 170, 4, 5, 7, 50, 1}));
  links.take([&](std::uint32_t, const Links::Sent&) { ADD_FAILURE() << "told twice"; });
}

TEST(Links, RefuseMorePeersThanTheyHold) {
  Links links;
  for (std::uint32_t peer = 0; peer < Links::kLinks; ++peer) {
    EXPECT_EQ(links.find(peer), peer);
  }
  EXPECT_EQ(links.find(Links::kLinks), Links::kNone);
  links.clear();
  EXPECT_EQ(links.find(Links::kLinks), 0U);
}

TEST(Volume, IsWhatARankOfARingSends) {
  EXPECT_EQ(element_bytes("ncclBfloat16"), 2U);
  EXPECT_EQ(element_bytes("ncclFloat8e4m3"), 1U);
  EXPECT_EQ(element_bytes("ncclInt64"), 8U);
  EXPECT_EQ(element_bytes("ncclUnknown"), 0U);
  EXPECT_EQ(element_bytes(nullptr), 0U);
  EXPECT_EQ(sent_bytes("AllReduce", 1'000, 2, 4), 3'000U);
  EXPECT_EQ(sent_bytes("AllGather", 1'000, 2, 4), 6'000U);
  EXPECT_EQ(sent_bytes("ReduceScatter", 1'000, 2, 4), 6'000U);
  EXPECT_EQ(sent_bytes("Broadcast", 1'000, 2, 4), 2'000U);
  EXPECT_EQ(sent_bytes("AllReduce", 1'000, 2, 1), 0U);
  EXPECT_EQ(sent_bytes(nullptr, 1'000, 2, 4), 0U);
}

}  // namespace
}  // namespace tapas::nccl
