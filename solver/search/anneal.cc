#include "solver/search/anneal.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

namespace tapas::solver {
namespace {

constexpr double kStart = 100;
constexpr double kAlpha = 0.95;
constexpr double kEnd = 0.1;
constexpr int kMovesPerTemperature = 4;

/// Draws that are the same with every standard library, unlike std::*_distribution.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  double unit() { return static_cast<double>(engine_() >> 11U) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

bool neighbours(const Shape& a, const Shape& b) {
  const auto stages = a.stages > b.stages ? a.stages - b.stages : b.stages - a.stages;
  const auto narrow = std::min(a.sharding.width, b.sharding.width);
  const auto wide = std::max(a.sharding.width, b.sharding.width);
  return stages <= 4 && wide <= 2 * narrow;
}

}  // namespace

void anneal(const std::vector<Shape>& shapes, std::uint64_t seed,
            const std::function<double(std::size_t)>& time_of) {
  // Fewer replicas than fit are left to the enumeration's bound: they never pay off in annealing.
  std::vector<std::size_t> states;
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const bool most = std::none_of(shapes.begin(), shapes.end(), [&](const Shape& other) {
      return other.sharding == shapes[k].sharding && other.stages == shapes[k].stages &&
             other.replicas > shapes[k].replicas;
    });
    if (most) {
      states.push_back(k);
    }
  }
  if (states.empty()) {
    return;
  }
  Draw draw(seed);
  std::size_t at = states[draw.below(states.size())];
  double now = time_of(at);
  for (double temperature = kStart; temperature > kEnd; temperature *= kAlpha) {
    for (int move = 0; move < kMovesPerTemperature; ++move) {
      std::vector<std::size_t> near;
      std::copy_if(states.begin(), states.end(), std::back_inserter(near),
                   [&](std::size_t k) { return k != at && neighbours(shapes[k], shapes[at]); });
      if (near.empty()) {
        return;
      }
      const std::size_t next = near[draw.below(near.size())];
      const double then = time_of(next);
      if (now < 0 || then < 0) {
        return;
      }
      const double rise = std::isfinite(now) && std::isfinite(then) ? 100 * std::log(then / now)
                          : std::isfinite(then)                     ? 0
                                                                    : 2 * kStart;
      if (!std::isfinite(now) || rise <= 0 || draw.unit() < std::exp(-rise / temperature)) {
        at = next;
        now = then;
      }
    }
  }
}

}  // namespace tapas::solver
