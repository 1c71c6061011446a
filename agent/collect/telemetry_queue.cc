#include "agent/collect/telemetry_queue.h"

#include "base/check.h"
#include "wire/record_codec.h"

#include <algorithm>
#include <cstring>

namespace tapas::agent {

namespace {
constexpr std::size_t kBatchRecords = wire::kMaxTelemetryBytes / wire::kRecordBytes;
}  // namespace

TelemetryQueue::TelemetryQueue(std::size_t max_records)
    : ring_(std::make_unique_for_overwrite<std::byte[]>(max_records * wire::kRecordBytes)),
      capacity_(max_records) {
  TAPAS_CHECK(max_records > 0, "a queue needs room");
}

void TelemetryQueue::push(std::span<const std::byte> records) {
  TAPAS_CHECK(records.size() % wire::kRecordBytes == 0, "{} bytes of records", records.size());
  if (size_ == 0) {
    first_ = 0;  // Memory that was never needed is never touched.
  }
  for (std::size_t at = 0; at < records.size(); at += wire::kRecordBytes) {
    if (size_ == capacity_) {
      first_ = (first_ + 1) % capacity_;
      --size_;
      ++dropped_;
    }
    const std::size_t slot = (first_ + size_) % capacity_;
    std::memcpy(ring_.get() + slot * wire::kRecordBytes, records.data() + at, wire::kRecordBytes);
    ++size_;
  }
}

std::vector<std::byte> TelemetryQueue::pop_batch() {
  const std::size_t count = std::min(size_, kBatchRecords);
  const std::size_t until_end = std::min(count, capacity_ - first_);
  std::vector<std::byte> batch(count * wire::kRecordBytes);
  if (count > 0) {
    std::memcpy(batch.data(), ring_.get() + first_ * wire::kRecordBytes,
                until_end * wire::kRecordBytes);
    std::memcpy(batch.data() + until_end * wire::kRecordBytes, ring_.get(),
                (count - until_end) * wire::kRecordBytes);
  }
  first_ = (first_ + count) % capacity_;
  size_ -= count;
  return batch;
}

}  // namespace tapas::agent
