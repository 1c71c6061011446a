#include "base/wall_time.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tapas {
namespace {

TEST(WallTime, IsUtcWithMilliseconds) {
  EXPECT_EQ(format_wall_time(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_wall_time(1'767'225'599'987'654'321), "2025-12-31T23:59:59.987Z");
}

TEST(WallTime, IsReadBackToTheMillisecond) {
  for (std::int64_t ms = 0; ms < 4'000'000'000'000; ms += 77'777'777'777) {
    EXPECT_EQ(parse_wall_time(format_wall_time(ms * 1'000'000)), ms * 1'000'000);
  }
  for (const char* text :
       {"", "2025-12-31", "2025-12-31 23:59:59.987Z", "2025-13-31T23:59:59.987Z",
        "2025-02-30T23:59:59.987Z", "2025-12-31T24:59:59.987Z", "2025-12-31T23:59:59,987Z",
        "9999-12-31T23:59:59.987Z", "2025-12-31T23:59:59.9x7Z"}) {
    EXPECT_FALSE(parse_wall_time(text)) << text;
  }
}

}  // namespace
}  // namespace tapas
