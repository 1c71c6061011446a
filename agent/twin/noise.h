#pragma once

#include <cstdint>

namespace tapas::twin {

/// What a draw is for: draws of different kinds are independent.
enum class Noise : std::uint64_t { kDevice = 1, kNic, kStep, kSession, kNonce, kLink };

/// A random number that depends on its arguments alone: no generator state, any order of calls.
[[nodiscard]] std::uint64_t draw(std::uint64_t seed, Noise kind, std::uint64_t a, std::uint64_t b);

/// Standard normal, cut at 3 deviations.
[[nodiscard]] double normal(std::uint64_t seed, Noise kind, std::uint64_t a, std::uint64_t b);

}  // namespace tapas::twin
