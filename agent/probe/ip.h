#pragma once

#include "base/result.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct sockaddr;

namespace tapas::agent::probe {

/// An IPv6 address in network order; IPv4 is mapped into ::ffff:0:0/96, as the kernel does where
/// one socket takes both.
using Ip = std::array<std::uint8_t, 16>;

/// Nothing for other families.
[[nodiscard]] std::optional<Ip> ip_of(const sockaddr* address);
/// "10.0.0.7" or "fdaa::7".
[[nodiscard]] std::string to_string(const Ip& ip);

/// "10.0.0.0/8", "fdaa::/16", or one address.
class IpRange {
 public:
  [[nodiscard]] static Result<IpRange> parse(std::string_view text);
  [[nodiscard]] bool contains(const Ip& ip) const;

 private:
  Ip first_ = {};
  unsigned bits_ = 128;  ///< How many must be alike.
};

}  // namespace tapas::agent::probe
