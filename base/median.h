#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tapas {

/// The upper one of two middle values. Requires a value.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tapas
