#include "agent/probe/ip.h"

#include "base/clean.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tapas::agent::probe {

namespace {

constexpr std::size_t kMapped = 12;  // Bytes before an IPv4 address.

Ip mapped(const in_addr& address) {
  Ip ip = {};
  ip[10] = 0xff;
  ip[11] = 0xff;
  std::memcpy(&ip[kMapped], &address, sizeof(address));
  return ip;
}

bool is_mapped(const Ip& ip) {
  const Ip prefix = mapped({});
  return std::equal(ip.begin(), ip.begin() + kMapped, prefix.begin());
}

}  // namespace

std::optional<Ip> ip_of(const sockaddr* address) {
  if (address == nullptr) {
    return std::nullopt;
  }
  if (address->sa_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, address, sizeof(four));
    return mapped(four.sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 six;
    std::memcpy(&six, address, sizeof(six));
    Ip ip;
    std::memcpy(ip.data(), &six.sin6_addr, ip.size());
    return ip;
  }
  return std::nullopt;
}

std::string to_string(const Ip& ip) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_mapped(ip)) {
    ::inet_ntop(AF_INET, &ip[kMapped], text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, ip.data(), text, sizeof(text));
  }
  return text;
}

Result<IpRange> IpRange::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  IpRange range;
  in_addr four = {};
  unsigned most = 128;
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) {
    range.first_ = mapped(four);
    most = 32;
  } else if (::inet_pton(AF_INET6, address.c_str(), range.first_.data()) != 1) {
    most = 0;
  }
  unsigned bits = most;
  bool good = most > 0;
  if (good && slash != std::string_view::npos) {
    const std::string_view number = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
    good = error == std::errc{} && end == number.data() + number.size() && bits <= most;
  }
  if (!good) {
    return fail(ErrorCode::kInvalid,
                "\"{}\" is no range of addresses: write 10.0.0.0/8, fdaa::/16 or one address",
                clean(text));
  }
  range.bits_ = 128 - most + bits;
  return range;
}

bool IpRange::contains(const Ip& ip) const {
  const std::size_t whole = bits_ / 8;
  if (!std::equal(ip.begin(), ip.begin() + whole, first_.begin())) {
    return false;
  }
  const unsigned rest = bits_ % 8;
  return rest == 0 || ((ip[whole] ^ first_[whole]) >> (8 - rest)) == 0;
}

}  // namespace tapas::agent::probe
