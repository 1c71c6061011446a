#pragma once

#include "base/result.h"
#include "wire/record.h"

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

namespace tapas::wire {

using Record = std::variant<StepRecord, LinkRecord, HealthRecord>;

inline constexpr std::size_t kMaxTelemetryBytes = 64U << 10U;

/// Splits a telemetry payload into records. Refuses the whole payload when its size is not a
/// multiple of 128 or over kMaxTelemetryBytes, or when a record has an unknown kind or version,
/// unknown flag bits, or a nonzero reserved field; the error names the record's index and offset.
[[nodiscard]] Result<std::vector<Record>> decode_records(std::span<const std::byte> payload);

/// The record's bytes appended to `out`.
void append_record(const Record& record, std::vector<std::byte>& out);

}  // namespace tapas::wire
