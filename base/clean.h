#pragma once

#include <string>
#include <string_view>

namespace tapas {

/// Printable ASCII, 128 characters of it at most: text of the other side ends in logs and
/// terminals.
[[nodiscard]] std::string clean(std::string_view text);

}  // namespace tapas
