#pragma once

#include "base/result.h"

#include <string>
#include <string_view>

namespace tapas {

/// Whether the text is tcp://host:port with a host name, an IPv4 address, an IPv6 address in
/// brackets or, to listen on all, "*"; the port may be "*", any free one, to listen. The error says
/// what to write instead.
[[nodiscard]] Result<void> check_endpoint(std::string_view text);

struct HostPort {
  std::string host;  ///< An IPv6 address without its brackets.
  std::string port;
};

/// "host:port", "10.0.0.1:28028" or "[::1]:28028"; the port is 1 to 65535, or 0 where `any_port`
/// says that this means any free one. The error says what to write instead.
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text, bool any_port = false);
/// What parse_host_port reads.
[[nodiscard]] std::string to_string(const HostPort& address);

}  // namespace tapas
