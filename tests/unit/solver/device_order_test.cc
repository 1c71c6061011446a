#include "solver/model/device_order.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tapas::solver {
namespace {

/// Paths of 8 devices by a function of the pair.
template <typename Path>
CommTable table_of(std::uint32_t devices, const Path& path) {
  CommTable table;
  table.nic_paths.resize(devices);
  for (std::uint32_t a = 0; a < devices; ++a) {
    for (std::uint32_t b = 0; b < devices; ++b) {
      table.paths.push_back(path(a, b));
    }
  }
  return table;
}

TEST(DeviceOrder, IsThatOfTheNumbersWhenAllPathsAreAlike) {
  const std::vector<std::uint16_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(device_order(simple_comm_table(8, 160e9, 8, 25e9), 8), numbers);
  const CommTable switched = table_of(8, [](auto, auto) {
    return DevicePath{PathType::kNvl, 240e9};
  });
  EXPECT_EQ(device_order(switched, 8), numbers);
}

TEST(DeviceOrder, PutsBridgedPairsAndSocketsTogether) {
  // NVLink bridges join i and i + 4; even numbers sit on one socket, odd ones on the other.
  const CommTable table = table_of(8, [](std::uint32_t a, std::uint32_t b) {
    if (a % 4 == b % 4) {
      return DevicePath{PathType::kNvl, 100e9};
    }
    return a % 2 == b % 2 ? DevicePath{PathType::kPhb, 24e9} : DevicePath{PathType::kSys, 10e9};
  });
  EXPECT_EQ(device_order(table, 8), (std::vector<std::uint16_t>{0, 4, 2, 6, 1, 5, 3, 7}));
}

TEST(DeviceOrder, KeepsEveryDeviceOnceWhenTheNumberIsOdd) {
  const CommTable table = table_of(7, [](std::uint32_t a, std::uint32_t b) {
    return a / 2 == b / 2 ? DevicePath{PathType::kPix, 12e9} : DevicePath{PathType::kPhb, 9e9};
  });
  std::vector<std::uint16_t> order = device_order(table, 7);
  EXPECT_EQ(order, (std::vector<std::uint16_t>{0, 1, 2, 3, 4, 5, 6}));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(std::unique(order.begin(), order.end()), order.end());
}

}  // namespace
}  // namespace tapas::solver
