// Both sides on one mapping, so that a thread checker sees their accesses meet.
#include "agent/rank/segment.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

namespace tapas::agent {
namespace {

constexpr std::uint64_t kSlots = 16;

struct SegmentWithRing {
  Segment segment;
  alignas(wire::kRecordBytes) std::byte slots[kSlots * wire::kRecordBytes];
};
static_assert(offsetof(SegmentWithRing, slots) == kRingOffset);

TEST(RecordRing, HandsEveryRecordOverWholeAndInOrder) {
  const auto shared = std::make_unique<SegmentWithRing>();
  constexpr std::uint64_t kRecords = 50'000;
  std::uint64_t pushed = 0;
  std::thread rank([&shared, &pushed] {
    RecordRing ring(&shared->segment, kSlots);
    for (std::uint64_t i = 1; i <= kRecords; ++i) {
      wire::StepRecord record;
      record.step = i;
      record.bytes_moved = ~i;
      pushed += ring.push(record) ? 1U : 0U;
    }
    shared->segment.closed.store(1, std::memory_order_release);
  });
  RecordRing ring(&shared->segment, kSlots);
  std::uint64_t popped = 0;
  std::uint64_t last = 0;
  for (bool closed = false; !closed;) {
    closed = shared->segment.closed.load(std::memory_order_acquire) != 0;
    for (wire::StepRecord record; ring.pop(record); ++popped) {
      EXPECT_GT(record.step, last);
      EXPECT_EQ(record.bytes_moved, ~record.step);
      last = record.step;
    }
  }
  rank.join();
  EXPECT_EQ(popped, pushed);
  EXPECT_EQ(shared->segment.dropped.load(), kRecords - pushed);
}

TEST(RecordRing, HoldsExactlyItsSize) {
  const auto shared = std::make_unique<SegmentWithRing>();
  RecordRing ring(&shared->segment, kSlots);
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    EXPECT_TRUE(ring.push({}));
  }
  EXPECT_FALSE(ring.push({}));
  wire::StepRecord record;
  EXPECT_TRUE(ring.pop(record));
  EXPECT_TRUE(ring.push({}));
  EXPECT_FALSE(ring.push({}));
}

TEST(Mailbox, ShowsWholeMessagesOnly) {
  Mailbox<SegmentCommand> mailbox;
  constexpr std::uint64_t kMessages = 50'000;
  std::thread writer([&mailbox] {
    for (std::uint64_t i = 1; i <= kMessages; ++i) {
      mailbox.write({1, 0, i, ~i, 2 * i});
    }
  });
  std::uint64_t last = 0;
  while (last < kMessages) {
    SegmentCommand message;
    std::uint64_t count = 0;
    if (!mailbox.read(message, count) || count == last) {
      continue;
    }
    ASSERT_GT(count, last);
    ASSERT_EQ(message.from_epoch, count);
    ASSERT_EQ(message.epoch, ~count);
    ASSERT_EQ(message.at_step, 2 * count);
    last = count;
  }
  writer.join();
}

TEST(Mailbox, RecoversFromAWriterThatDiedHalfWay) {
  Mailbox<SegmentCommand> mailbox;
  mailbox.write({1, 0, 1, 1, 1});
  std::uint64_t busy = 0;
  std::memcpy(&busy, static_cast<void*>(&mailbox), sizeof(busy));
  busy |= 1U;
  std::memcpy(static_cast<void*>(&mailbox), &busy, sizeof(busy));
  SegmentCommand message;
  std::uint64_t count = 0;
  EXPECT_FALSE(mailbox.read(message, count));
  mailbox.write({2, 0, 5, 6, 7});
  ASSERT_TRUE(mailbox.read(message, count));
  EXPECT_EQ(message.epoch, 6U);
  EXPECT_EQ(count, 2U);
}

}  // namespace
}  // namespace tapas::agent
