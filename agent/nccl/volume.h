#pragma once

#include <cstdint>

namespace tapas::nccl {

/// Bytes of an element of NCCL's type by its name ("ncclBfloat16" is 2); 0 = unknown.
[[nodiscard]] std::uint32_t element_bytes(const char* datatype);

/// Bytes that one rank sends in a collective of `count` elements by ring, as NCCL counts elements:
/// per rank for AllGather and ReduceScatter.
[[nodiscard]] std::uint64_t sent_bytes(const char* function, std::uint64_t count,
                                       std::uint32_t element, std::uint32_t ranks);

}  // namespace tapas::nccl
