#include "ctl/client.h"

#include "ctl/fields.h"
#include "ctl/table.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <utility>  // before asio: Boost 1.74 forgets it in C++20

namespace tapas::ctl {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Unix = asio::local::stream_protocol;

constexpr std::uint64_t kMaxAnswerBytes = 64U << 20U;

ErrorCode code_from(std::string_view word, unsigned status) {
  for (const ErrorCode code :
       {ErrorCode::kInvalid, ErrorCode::kInfeasible, ErrorCode::kNotFound, ErrorCode::kConflict,
        ErrorCode::kDenied, ErrorCode::kUnavailable, ErrorCode::kTimeout, ErrorCode::kIo}) {
    if (to_string(code) == word) {
      return code;
    }
  }
  switch (status) {
    case 403:
      return ErrorCode::kDenied;
    case 404:
      return ErrorCode::kNotFound;
    case 409:
      return ErrorCode::kConflict;
    case 503:
      return ErrorCode::kUnavailable;
    case 504:
      return ErrorCode::kTimeout;
    default:
      return ErrorCode::kInvalid;
  }
}

}  // namespace

Result<json::Value> Client::get(std::string_view target, std::string_view schema,
                                std::chrono::seconds deadline) const {
  const auto answer = exchange("GET", target, {}, deadline);
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  return read(*answer, schema);
}

Result<json::Value> Client::post(std::string_view target, const json::Value& body,
                                 std::string_view schema, std::chrono::seconds deadline) const {
  const auto answer = exchange("POST", target, json::dump(body), deadline);
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  return read(*answer, schema);
}

Result<Client::Answer> Client::exchange(std::string_view method, std::string_view target,
                                        std::string body, std::chrono::seconds deadline) const {
  http::request<http::string_body> request;
  request.method_string({method.data(), method.size()});
  request.target({target.data(), target.size()});
  request.version(11);
  request.set(http::field::host, "tapasd");
  request.set(http::field::user_agent, "tapasctl/" TAPAS_VERSION);
  request.keep_alive(false);
  if (!body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = std::move(body);
  }
  request.prepare_payload();

  asio::io_context io;
  beast::basic_stream<Unix> stream(io);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswerBytes);
  beast::error_code connected;
  beast::error_code finished;

  Unix::endpoint endpoint;
  try {
    endpoint = Unix::endpoint(socket_path_);
  } catch (const boost::system::system_error&) {
    return fail(ErrorCode::kInvalid, "socket path {} is too long for a unix socket", socket_path_);
  }
  // One deadline for the whole exchange; blocking calls on a basic_stream would not obey it.
  stream.expires_after(deadline);
  stream.async_connect(endpoint, [&](beast::error_code error) {
    connected = error;
    if (error) {
      return;
    }
    http::async_write(stream, request, [&](beast::error_code write_error, std::size_t) {
      // A refusal can arrive before the whole request is sent, so the answer is read anyway.
      if (write_error == beast::error::timeout) {
        finished = write_error;
        return;
      }
      http::async_read(stream, buffer, parser,
                       [&](beast::error_code read_error, std::size_t) { finished = read_error; });
    });
  });
  io.run();

  if (connected == asio::error::access_denied) {
    return fail(ErrorCode::kDenied,
                "no permission to open {}: run as root or as a member of the operator group",
                socket_path_);
  }
  if (connected && connected != beast::error::timeout) {
    return fail(ErrorCode::kUnavailable,
                "cannot reach tapasd at {} ({}): see `systemctl status tapasd`, or give the right "
                "socket with --socket",
                socket_path_, connected.message());
  }
  if (connected == beast::error::timeout || finished == beast::error::timeout) {
    return fail(ErrorCode::kTimeout,
                "tapasd at {} gave no answer to {} {} in {} s; the outcome is unknown",
                socket_path_, method, target, deadline.count());
  }
  if (finished == http::error::end_of_stream || finished == asio::error::connection_reset) {
    return fail(ErrorCode::kUnavailable,
                "tapasd at {} closed the connection before it answered {} {}; the outcome is "
                "unknown",
                socket_path_, method, target);
  }
  if (finished) {
    return fail(ErrorCode::kIo, "the answer of {} to {} {} is not readable: {}", socket_path_,
                method, target, finished.message());
  }
  return Answer{parser.get().result_int(), std::move(parser.get().body())};
}

Result<json::Value> Client::read(const Answer& answer, std::string_view schema) const {
  auto value = json::parse(answer.body);
  if (!value) {
    return fail(ErrorCode::kIo, "the answer of {} (HTTP {}) is not JSON: {}", socket_path_,
                answer.status, value.error().message);
  }
  if (answer.status >= 400) {
    const json::Value& error = object_at(*value, "error");
    const std::string message = text_at(error, "message", "no reason given");
    return tl::unexpected(Error{code_from(text_at(error, "code"), answer.status), message});
  }
  if (!schema.empty() && text_at(*value, "schema") != schema) {
    return fail(ErrorCode::kIo,
                "{} answered with schema \"{}\" where {} was asked for: tapasctl {} and tapasd "
                "are of different versions",
                socket_path_, printable(text_at(*value, "schema")), schema, TAPAS_VERSION);
  }
  return value;
}

std::string url_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    out += plain ? std::string(1, c)
                 : fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace tapas::ctl
