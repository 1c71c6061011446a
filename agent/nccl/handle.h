#pragma once

#include <bit>
#include <cstdint>

namespace tapas::nccl {

/// What NCCL keeps for us between two calls, in the place of a pointer: nothing is ever followed,
/// so a handle that is late, doubled or of something gone is recognised and ignored.
struct Handle {
  enum Kind : std::uint8_t {
    kNothing = 0,
    kCommunicator,
    kGroup,
    kOperation,
    kKernel,
    kProxyOp,
    kStep
  };

  Kind kind = kNothing;
  std::uint8_t part = 0;         ///< kKernel: channel; kProxyOp: link of the communicator
  std::uint16_t index = 0;       ///< in the pool
  std::uint32_t generation = 0;  ///< of that place

  [[nodiscard]] void* to_pointer() const { return std::bit_cast<void*>(*this); }
  static Handle from_pointer(void* pointer) { return std::bit_cast<Handle>(pointer); }
};
static_assert(sizeof(Handle) == sizeof(void*));

}  // namespace tapas::nccl
