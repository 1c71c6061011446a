#include "agent/twin/noise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapas::twin {

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

// In (0, 1].
double unit(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11U) + 1.0) / 9007199254740992.0;
}

}  // namespace

std::uint64_t draw(std::uint64_t seed, Noise kind, std::uint64_t a, std::uint64_t b) {
  return mix(mix(mix(mix(seed) ^ static_cast<std::uint64_t>(kind)) ^ a) ^ b);
}

double normal(std::uint64_t seed, Noise kind, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t bits = draw(seed, kind, a, b);
  const double radius = std::sqrt(-2.0 * std::log(unit(bits)));
  const double angle = 2.0 * std::numbers::pi * unit(mix(bits));
  return std::clamp(radius * std::cos(angle), -3.0, 3.0);
}

}  // namespace tapas::twin
