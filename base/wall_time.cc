#include "base/wall_time.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>

namespace tapas {
namespace {

using std::chrono::days;
using std::chrono::floor;
using std::chrono::milliseconds;

}  // namespace

std::string format_wall_time(std::int64_t wall_ns) {
  const std::chrono::sys_time<milliseconds> time(
      floor<milliseconds>(std::chrono::nanoseconds(wall_ns)));
  const auto day = floor<days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

std::optional<std::int64_t> parse_wall_time(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:dd.dddZ";
  if (text.size() != kShape.size()) {
    return std::nullopt;
  }
  std::array<int, 7> parts{};
  std::size_t part = 0;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == 'd' ? !digit : text[i] != kShape[i]) {
      return std::nullopt;
    }
    if (digit) {
      parts[part] = parts[part] * 10 + (text[i] - '0');
    } else {
      ++part;
    }
  }
  const std::chrono::year_month_day date{std::chrono::year(parts[0]),
                                         std::chrono::month(static_cast<unsigned>(parts[1])),
                                         std::chrono::day(static_cast<unsigned>(parts[2]))};
  constexpr int kFirstYear = 1970;
  constexpr int kLastYear = 2261;  // Nanoseconds end in 2262.
  if (!date.ok() || parts[0] < kFirstYear || parts[0] > kLastYear || parts[3] > 23 ||
      parts[4] > 59 || parts[5] > 60) {
    return std::nullopt;
  }
  const auto time = std::chrono::sys_days(date) + std::chrono::hours(parts[3]) +
                    std::chrono::minutes(parts[4]) + std::chrono::seconds(parts[5]) +
                    milliseconds(parts[6]);
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace tapas
