#include "agent/collect/telemetry_queue.h"

#include "wire/record_codec.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace tapas::agent {
namespace {

std::vector<std::byte> record(std::uint64_t step) {
  wire::StepRecord step_record;
  step_record.step = step;
  std::vector<std::byte> bytes;
  wire::append_record(step_record, bytes);
  return bytes;
}

std::vector<std::uint64_t> steps(const std::vector<std::byte>& batch) {
  std::vector<std::uint64_t> result;
  const auto records = wire::decode_records(batch);
  EXPECT_TRUE(records);
  for (const wire::Record& item : *records) {
    result.push_back(std::get<wire::StepRecord>(item).step);
  }
  return result;
}

TEST(TelemetryQueue, DropsAndCountsTheOldest) {
  TelemetryQueue queue(3);
  for (std::uint64_t step = 1; step <= 5; ++step) {
    queue.push(record(step));
  }
  EXPECT_EQ(queue.dropped(), 2U);
  EXPECT_EQ(steps(queue.pop_batch()), (std::vector<std::uint64_t>{3, 4, 5}));
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.pop_batch().empty());
}

TEST(TelemetryQueue, GivesAtMostOnePayload) {
  TelemetryQueue queue(1000);
  for (std::uint64_t step = 0; step < 700; ++step) {
    queue.push(record(step));
  }
  EXPECT_EQ(queue.pop_batch().size(), wire::kMaxTelemetryBytes);
  EXPECT_EQ(queue.pop_batch().size(), 188 * wire::kRecordBytes);
}

TEST(TelemetryQueue, BehavesAsADequeOfBoundedSize) {
  std::mt19937 random(20'240'501);
  TelemetryQueue queue(600);
  std::deque<std::uint64_t> model;
  std::uint64_t dropped = 0;
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    queue.push(record(step));
    model.push_back(step);
    if (model.size() > 600) {
      model.pop_front();
      ++dropped;
    }
    if (random() % 400 == 0) {
      const std::size_t count = std::min<std::size_t>(model.size(), 512);
      const std::vector<std::uint64_t> expected(model.begin(),
                                                model.begin() + static_cast<std::ptrdiff_t>(count));
      ASSERT_EQ(steps(queue.pop_batch()), expected);
      model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(count));
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.dropped(), dropped);
  }
}

}  // namespace
}  // namespace tapas::agent
