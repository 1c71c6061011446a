#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace tapas {

/// The upper one of two middle values. Requires a value.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The lower one of two middle values: with two halves the smaller one is the yardstick. NaN of
/// none. Reorders them.
[[nodiscard]] inline double lower_median(std::vector<double>& values) {
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tapas
