#include "solver/model/device_order.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace tapas::solver {
namespace {

using Group = std::vector<std::uint16_t>;

/// Orders paths: the smaller, the better. Bandwidth first: it is what a collective feels.
using Distance = std::tuple<double, PathType>;

/// The worst path between the two groups.
Distance distance(const CommTable& table, const Group& a, const Group& b) {
  Distance worst{-std::numeric_limits<double>::infinity(), PathType::kLoc};
  for (const std::uint16_t from : a) {
    for (const std::uint16_t to : b) {
      const DevicePath path = table.path(from, to);
      worst = std::max(worst, Distance{-path.bytes_per_s, path.type});
    }
  }
  return worst;
}

}  // namespace

std::vector<std::uint16_t> device_order(const CommTable& table, std::uint32_t devices) {
  std::vector<std::uint16_t> numbers(devices);
  std::iota(numbers.begin(), numbers.end(), std::uint16_t{0});
  if (table.paths.size() != std::size_t{devices} * devices) {
    return numbers;
  }
  std::vector<Group> groups;
  for (const std::uint16_t device : numbers) {
    groups.push_back({device});
  }
  while (groups.size() > 1) {
    struct Pair {
      Distance distance;
      std::size_t a = 0;
      std::size_t b = 0;
    };
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < groups.size(); ++a) {
      for (std::size_t b = a + 1; b < groups.size(); ++b) {
        pairs.push_back({distance(table, groups[a], groups[b]), a, b});
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& x, const Pair& y) { return x.distance < y.distance; });
    std::vector<Group> merged;
    for (const auto& [apart, a, b] : pairs) {
      if (!groups[a].empty() && !groups[b].empty()) {
        Group& both = merged.emplace_back(std::exchange(groups[a], {}));
        std::ranges::copy(std::exchange(groups[b], {}), std::back_inserter(both));
      }
    }
    // Whole groups first, so that those of every width start at multiples of it.
    std::stable_sort(merged.begin(), merged.end(), [](const Group& x, const Group& y) {
      return x.size() != y.size() ? x.size() > y.size() : x.front() < y.front();
    });
    for (Group& odd : groups) {
      if (!odd.empty()) {
        merged.push_back(std::move(odd));
      }
    }
    groups = std::move(merged);
  }
  return groups.empty() ? numbers : groups.front();
}

}  // namespace tapas::solver
