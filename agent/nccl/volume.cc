#include "agent/nccl/volume.h"

#include <cstring>

namespace tapas::nccl {

std::uint32_t element_bytes(const char* datatype) {
  if (datatype == nullptr) {
    return 0;
  }
  const char* digit = datatype + std::strcspn(datatype, "0123456789");
  std::uint32_t bits = 0;
  for (; *digit >= '0' && *digit <= '9' && bits < 1000; ++digit) {
    bits = 10 * bits + static_cast<std::uint32_t>(*digit - '0');
  }
  return bits % 8 == 0 && bits <= 64 ? bits / 8 : 0;
}

std::uint64_t sent_bytes(const char* function, std::uint64_t count, std::uint32_t element,
                         std::uint32_t ranks) {
  const std::uint64_t bytes = count * element;
  if (function == nullptr || ranks < 2) {
    return 0;
  }
  if (std::strcmp(function, "AllReduce") == 0) {
    return 2 * bytes / ranks * (ranks - 1);
  }
  if (std::strcmp(function, "AllGather") == 0 || std::strcmp(function, "ReduceScatter") == 0) {
    return bytes * (ranks - 1);
  }
  return bytes;
}

}  // namespace tapas::nccl
