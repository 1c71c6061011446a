#include "wire/record_codec.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace tapas::wire {

namespace {

template <typename T>
T read_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

Result<void> check_flags(std::uint32_t flags, std::uint32_t known) {
  if ((flags & ~known) != 0) {
    return fail(ErrorCode::kInvalid, "unknown flag bits {:#x} at byte 4; known are {:#x}",
                flags & ~known, known);
  }
  return {};
}

Result<void> check_zero(std::uint64_t value, std::size_t offset) {
  if (value != 0) {
    return fail(ErrorCode::kInvalid, "reserved field at byte {} is {:#x} and must be 0", offset,
                value);
  }
  return {};
}

Result<Record> decode_step(std::span<const std::byte> bytes) {
  const auto record = read_at<StepRecord>(bytes, 0);
  if (auto ok = check_flags(record.flags, kKnownStepFlags); !ok) {
    return tl::unexpected(ok.error());
  }
  return record;
}

Result<Record> decode_link(std::span<const std::byte> bytes) {
  const auto record = read_at<LinkRecord>(bytes, 0);
  if (auto ok = check_flags(record.flags, 0); !ok) {
    return tl::unexpected(ok.error());
  }
  if (auto ok = check_zero(record.reserved0, offsetof(LinkRecord, reserved0)); !ok) {
    return tl::unexpected(ok.error());
  }
  for (std::size_t i = 0; i < std::size(record.reserved); ++i) {
    const std::size_t offset = offsetof(LinkRecord, reserved) + i * sizeof(record.reserved[0]);
    if (auto ok = check_zero(record.reserved[i], offset); !ok) {
      return tl::unexpected(ok.error());
    }
  }
  return record;
}

Result<Record> decode_health(std::span<const std::byte> bytes) {
  const auto record = read_at<HealthRecord>(bytes, 0);
  if (auto ok = check_flags(record.flags, 0); !ok) {
    return tl::unexpected(ok.error());
  }
  return record;
}

Result<Record> decode_record(std::span<const std::byte> bytes) {
  const auto kind = read_at<std::uint16_t>(bytes, offsetof(StepRecord, kind));
  const auto version = read_at<std::uint16_t>(bytes, offsetof(StepRecord, version));
  if (version != kRecordVersion) {
    return fail(ErrorCode::kInvalid, "version {} at byte 2; this program reads version {}", version,
                kRecordVersion);
  }
  switch (RecordKind{kind}) {
    case RecordKind::kStep:
      return decode_step(bytes);
    case RecordKind::kLink:
      return decode_link(bytes);
    case RecordKind::kHealth:
      return decode_health(bytes);
  }
  return fail(ErrorCode::kInvalid, "unknown kind {} at byte 0; known are 1 step, 2 link, 3 health",
              kind);
}

}  // namespace

Result<std::vector<Record>> decode_records(std::span<const std::byte> payload) {
  if (payload.size() > kMaxTelemetryBytes) {
    return fail(ErrorCode::kInvalid, "telemetry of {} bytes; at most {} are allowed",
                payload.size(), kMaxTelemetryBytes);
  }
  if (payload.size() % kRecordBytes != 0) {
    return fail(ErrorCode::kInvalid,
                "telemetry of {} bytes is not a whole number of {}-byte records", payload.size(),
                kRecordBytes);
  }
  std::vector<Record> records;
  records.reserve(payload.size() / kRecordBytes);
  for (std::size_t offset = 0; offset < payload.size(); offset += kRecordBytes) {
    auto record = decode_record(payload.subspan(offset, kRecordBytes));
    if (!record) {
      return fail_in(fmt::format("record {} at offset {}", offset / kRecordBytes, offset),
                     record.error());
    }
    records.push_back(*std::move(record));
  }
  return records;
}

void append_record(const Record& record, std::vector<std::byte>& out) {
  std::visit(
      [&out](const auto& typed) {
        const std::size_t offset = out.size();
        out.resize(offset + kRecordBytes);
        std::memcpy(out.data() + offset, &typed, kRecordBytes);
      },
      record);
}

}  // namespace tapas::wire
