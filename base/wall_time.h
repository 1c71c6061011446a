#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tapas {

/// Nanoseconds since 1970 as "2026-02-03T04:05:06.789Z".
[[nodiscard]] std::string format_wall_time(std::int64_t wall_ns);
/// The other way round; nothing for any other text.
[[nodiscard]] std::optional<std::int64_t> parse_wall_time(std::string_view text);

}  // namespace tapas
