#include "wire/record_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace tapas::wire {
namespace {

/// Every field differs from every other and from its default.
StepRecord full_step() {
  StepRecord record;
  std::vector<unsigned char> bytes(sizeof(record));
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(1));
  std::memcpy(&record, bytes.data(), sizeof(record));
  record.kind = RecordKind::kStep;
  record.version = kRecordVersion;
  record.flags = kFirstStep | kEvaluation;
  return record;
}

template <typename T>
bool same_bytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

std::string error_of(const std::vector<std::byte>& payload) {
  const auto records = decode_records(payload);
  return records ? "accepted" : records.error().message;
}

/// A payload of two good records, with a value written at a byte of the second one.
template <typename T>
std::vector<std::byte> second_with(const Record& record, std::size_t offset, T value) {
  std::vector<std::byte> payload;
  append_record(StepRecord{}, payload);
  append_record(record, payload);
  std::memcpy(payload.data() + kRecordBytes + offset, &value, sizeof(value));
  return payload;
}

TEST(RecordCodec, KeepsEveryByteOfEachKind) {
  const StepRecord step = full_step();
  LinkRecord link;
  link.bytes = 0x0102030405060708;
  link.device.fill(0xAB);
  HealthRecord health;
  health.temperature_mc = -5;
  health.device.fill(0xCD);
  std::vector<std::byte> payload;
  append_record(step, payload);
  append_record(link, payload);
  append_record(health, payload);
  ASSERT_EQ(payload.size(), 3 * kRecordBytes);

  const auto records = decode_records(payload);
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), 3U);
  EXPECT_TRUE(same_bytes(std::get<StepRecord>((*records)[0]), step));
  EXPECT_TRUE(same_bytes(std::get<LinkRecord>((*records)[1]), link));
  EXPECT_TRUE(same_bytes(std::get<HealthRecord>((*records)[2]), health));
}

TEST(RecordCodec, WritesLittleEndian) {
  StepRecord record;
  record.step = 0x1122334455667788;
  std::vector<std::byte> payload;
  append_record(record, payload);
  EXPECT_EQ(payload[0], std::byte{1});
  EXPECT_EQ(payload[1], std::byte{0});
  EXPECT_EQ(payload[40], std::byte{0x88});
  EXPECT_EQ(payload[47], std::byte{0x11});
}

TEST(RecordCodec, TakesAnEmptyAndAFullPayload) {
  EXPECT_TRUE(decode_records({}));
  std::vector<std::byte> payload;
  for (std::size_t i = 0; i < kMaxTelemetryBytes / kRecordBytes; ++i) {
    append_record(StepRecord{}, payload);
  }
  const auto records = decode_records(payload);
  ASSERT_TRUE(records);
  EXPECT_EQ(records->size(), 512U);
  append_record(StepRecord{}, payload);
  EXPECT_EQ(error_of(payload), "telemetry of 65664 bytes; at most 65536 are allowed");
}

TEST(RecordCodec, RefusesAnySizeThatIsNotWholeRecords) {
  for (std::size_t size = 1; size < 2 * kRecordBytes; ++size) {
    if (size != kRecordBytes) {
      EXPECT_FALSE(decode_records(std::vector<std::byte>(size))) << size;
    }
  }
  EXPECT_EQ(error_of(std::vector<std::byte>(127)),
            "telemetry of 127 bytes is not a whole number of 128-byte records");
}

TEST(RecordCodec, NamesWhatItRefusesAndWhere) {
  EXPECT_EQ(error_of(second_with(StepRecord{}, 0, std::uint16_t{9})),
            "record 1 at offset 128: unknown kind 9 at byte 0; known are 1 step, 2 link, 3 health");
  EXPECT_EQ(error_of(second_with(StepRecord{}, 2, std::uint16_t{2})),
            "record 1 at offset 128: version 2 at byte 2; this program reads version 1");
  EXPECT_EQ(error_of(second_with(StepRecord{}, 4, std::uint32_t{0x21})),
            "record 1 at offset 128: unknown flag bits 0x20 at byte 4; known are 0x1f");
  EXPECT_EQ(error_of(second_with(LinkRecord{}, 4, std::uint32_t{1})),
            "record 1 at offset 128: unknown flag bits 0x1 at byte 4; known are 0x0");
  EXPECT_EQ(error_of(second_with(HealthRecord{}, 4, std::uint32_t{1})),
            "record 1 at offset 128: unknown flag bits 0x1 at byte 4; known are 0x0");
  EXPECT_EQ(error_of(second_with(LinkRecord{}, 84, std::uint32_t{7})),
            "record 1 at offset 128: reserved field at byte 84 is 0x7 and must be 0");
  for (const std::size_t offset : {104U, 112U, 120U}) {
    EXPECT_EQ(error_of(second_with(LinkRecord{}, offset, std::uint64_t{7})),
              "record 1 at offset 128: reserved field at byte " + std::to_string(offset) +
                  " is 0x7 and must be 0");
  }
}

}  // namespace
}  // namespace tapas::wire
