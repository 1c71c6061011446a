#include "target.h"
#include "wire/record_codec.h"

#include <algorithm>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto records = tapas::wire::decode_records(input);
  if (records) {
    std::vector<std::byte> again;
    for (const tapas::wire::Record& record : *records) {
      append_record(record, again);
    }
    tapas::fuzz::require(std::ranges::equal(again, input), "accepted records keep their bytes");
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  std::vector<std::byte> bytes;
  std::vector<std::string> seeds;
  for (const wire::Record& record :
       {wire::Record(wire::StepRecord{}), wire::Record(wire::LinkRecord{}),
        wire::Record(wire::HealthRecord{})}) {
    append_record(record, bytes);
    seeds.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  seeds.emplace_back(wire::kMaxTelemetryBytes + wire::kRecordBytes, '\0');
  return seeds;
}
