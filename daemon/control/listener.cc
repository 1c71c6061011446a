#include "daemon/control/listener.h"

#include "base/json/json.h"
#include "daemon/control/api.h"
#include "daemon/control/format.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace tapas::daemon {
namespace {

using tcp = asio::ip::tcp;

/// "[::1]:80" -> "::1" and "80"; a missing port is empty.
std::pair<std::string, std::string> split_host(std::string_view text) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.rfind(':');
  std::string_view host = text;
  std::string_view port;
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {std::string(host), std::string(port)};
}

std::string machine_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// Numbers cannot be given to another machine, and these names are ours.
bool names_us(const std::string& host_field, const std::string& configured_host) {
  const std::string host = split_host(host_field).first;
  boost::system::error_code no_number;
  asio::ip::make_address(host, no_number);
  return !no_number || host == "localhost" || host == configured_host || host == machine_name();
}

}  // namespace

Result<std::unique_ptr<ReadListener>> ReadListener::open(asio::io_context& io,
                                                         const std::string& address, Api& api) {
  const auto [host, port] = split_host(address);
  // The resolver takes any number for a port, and cuts it.
  std::uint16_t number = 0;
  const auto [rest, wrong] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (wrong != std::errc() || rest != port.data() + port.size()) {
    return fail(ErrorCode::kInvalid,
                "http_listen {}: host:port with a port from 0 to 65535 is expected", address);
  }
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(host, port, tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(ErrorCode::kInvalid, "http_listen {}: {}; host:port of this machine is expected",
                address, error.message());
  }
  const tcp::endpoint endpoint = *found.begin();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) {
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
  }
  if (!error) {
    acceptor.bind(endpoint, error);
  }
  if (!error) {
    acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    return fail(ErrorCode::kIo,
                "http_listen {}: {}; is another daemon there, and is the address one of this host?",
                address, error.message());
  }
  const tcp::endpoint bound = acceptor.local_endpoint();
  std::string as_bound = fmt::format(fmt::runtime(bound.address().is_v6() ? "[{}]:{}" : "{}:{}"),
                                     bound.address().to_string(), bound.port());
  auto http = std::make_unique<HttpServer>(
      io, std::move(acceptor), [&api, host = host](int) -> Result<HttpHandler> {
        return [&api, host](const HttpRequest& request, const HttpReply& reply) {
          if (!names_us(request.host, host)) {
            return reply({403, json::dump(error_json(
                                   ErrorCode::kDenied,
                                   fmt::format("Host \"{}\" is not this machine: ask by its "
                                               "address, or put the name into http_listen",
                                               request.host)))});
          }
          api.handle(request, std::nullopt, reply);
        };
      });
  return std::unique_ptr<ReadListener>(new ReadListener(std::move(http), std::move(as_bound)));
}

}  // namespace tapas::daemon
