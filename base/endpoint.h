#pragma once

#include "base/result.h"

#include <string_view>

namespace tapas {

/// Whether the text is tcp://host:port with a host name, an IPv4 address, an IPv6 address in
/// brackets or, to listen on all, "*"; the port may be "*", any free one, to listen. The error says
/// what to write instead.
[[nodiscard]] Result<void> check_endpoint(std::string_view text);

}  // namespace tapas
