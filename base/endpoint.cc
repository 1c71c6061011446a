#include "base/endpoint.h"

#include "base/clean.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace tapas {
namespace {

constexpr std::string_view kScheme = "tcp://";

bool all_of(std::string_view text, std::string_view extra, bool hex) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    const bool digit = c >= '0' && c <= '9';
    const char low = static_cast<char>(c | 0x20);
    return digit || (low >= 'a' && low <= (hex ? 'f' : 'z')) ||
           extra.find(c) != std::string_view::npos;
  });
}

/// An IPv6 address, perhaps with a zone: "fe80::1%eth0".
bool is_ipv6(std::string_view text) {
  const std::size_t zone = text.find('%');
  return all_of(text.substr(0, zone), ":.", true) &&
         (zone == std::string_view::npos || all_of(text.substr(zone + 1), ".-_", false));
}

bool is_port(std::string_view text) {
  if (text == "*") {
    return true;
  }
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0;
}

}  // namespace

Result<void> check_endpoint(std::string_view text) {
  if (!text.starts_with(kScheme)) {
    return fail(ErrorCode::kInvalid, "\"{}\" is no endpoint; write tcp://host:port", text);
  }
  const std::string_view rest = text.substr(kScheme.size());
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find("]:");
    if (end == std::string_view::npos || !is_ipv6(rest.substr(1, end - 1)) ||
        !is_port(rest.substr(end + 2))) {
      return fail(ErrorCode::kInvalid, "\"{}\" is no endpoint; write tcp://[address]:port", text);
    }
    return {};
  }
  const std::size_t colon = rest.rfind(':');
  if (std::count(rest.begin(), rest.end(), ':') > 1) {
    return fail(ErrorCode::kInvalid,
                "\"{}\" does not tell where the IPv6 address ends and the port begins; put the "
                "address in brackets: tcp://[{}]:{}",
                text, rest.substr(0, colon), rest.substr(colon + 1));
  }
  const std::string_view host = rest.substr(0, colon);
  if (colon == std::string_view::npos || !is_port(rest.substr(colon + 1)) ||
      (host != "*" && !all_of(host, ".-_", false))) {
    return fail(ErrorCode::kInvalid, "\"{}\" is no endpoint; write tcp://host:port", text);
  }
  return {};
}

Result<HostPort> parse_host_port(std::string_view text, bool any_port) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = {};
  }
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc{} || end != port.data() + port.size() ||
      (number == 0 && !any_port)) {
    return fail(ErrorCode::kInvalid,
                "\"{}\" is no address: write host:port, such as localhost:28028 or [::1]:28028",
                clean(text));
  }
  return HostPort{std::string(host), std::string(port)};
}

std::string to_string(const HostPort& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return (six ? "[" + address.host + "]" : address.host) + ":" + address.port;
}

}  // namespace tapas
