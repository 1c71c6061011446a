#include "daemon/control/http.h"

#include <chrono>
#include <optional>
#include <string_view>

// clang-format off
#include "daemon/control/asio.h"
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
// clang-format on
#include "base/log/log.h"

#include <fmt/format.h>

namespace tapas::daemon {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;
using Stream = beast::basic_stream<Protocol, asio::any_io_executor>;

constexpr std::size_t kMaxClients = 64;
constexpr std::uint32_t kMaxHeaderBytes = 8U << 10U;
constexpr std::uint64_t kMaxBodyBytes = 64U << 10U;
constexpr std::chrono::seconds kReadTimeout{10};
constexpr std::chrono::seconds kIdleTimeout{60};
constexpr std::chrono::seconds kWriteTimeout{30};
constexpr std::string_view kLog = "http";

/// One client; lives as long as an operation or an open request holds it.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Socket socket, HttpHandler handler, std::shared_ptr<std::size_t> clients)
      : stream_(std::move(socket)), handler_(std::move(handler)), clients_(std::move(clients)) {
    ++*clients_;
  }
  ~Session() { --*clients_; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void read(std::chrono::seconds timeout) {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    stream_.expires_after(timeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       self->on_read(error);
                     });
  }

 private:
  void on_read(beast::error_code error) {
    if (error == http::error::body_limit || error == http::error::header_limit) {
      return write({413, R"({"schema":"tapas.error/1","error":{"code":"invalid",)"
                         R"("message":"the request is too large"}})"},
                   false);
    }
    if (error) {
      return;  // gone, silent too long, or not HTTP: closing is all that helps
    }
    http::request<http::string_body> request = parser_->release();
    stream_.expires_never();
    const bool keep_alive = request.keep_alive();
    handler_({std::string(request.method_string()), std::string(request.target()),
              std::move(request.body()), std::string(request[http::field::host])},
             [self = shared_from_this(), keep_alive](HttpResponse response) {
               self->write(std::move(response), keep_alive);
             });
  }

  void write(HttpResponse answer, bool keep_alive) {
    response_.emplace(static_cast<http::status>(answer.status), 11);
    response_->set(http::field::server, "tapasd/" TAPAS_VERSION);
    response_->set(http::field::content_type, answer.content_type);
    response_->set(http::field::cache_control, "no-store");
    response_->set("Content-Security-Policy", "default-src 'none'");
    response_->set("X-Content-Type-Options", "nosniff");
    response_->keep_alive(keep_alive);
    response_->body() = std::move(answer.body);
    if (!response_->body().ends_with('\n')) {
      response_->body() += '\n';
    }
    response_->prepare_payload();
    stream_.expires_after(kWriteTimeout);
    http::async_write(
        stream_, *response_,
        [self = shared_from_this(), keep_alive](beast::error_code error, std::size_t) {
          if (!error && keep_alive) {
            self->read(kIdleTimeout);
          } else {
            beast::error_code ignored;
            self->stream_.socket().shutdown(Socket::shutdown_both, ignored);
          }
        });
  }

  Stream stream_;
  const HttpHandler handler_;
  std::shared_ptr<std::size_t> clients_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
};

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(asio::io_context& io, Acceptor listening, Welcome who)
      : acceptor(std::move(listening)), retry(io), welcome(std::move(who)) {}

  void accept() {
    acceptor.async_accept(
        [self = shared_from_this()](boost::system::error_code error, Socket socket) {
          if (error == asio::error::operation_aborted) {
            return;
          }
          if (error) {
            log::warning_limited(kLog, "accept", "no new client: " + error.message());
            return self->accept_later();
          }
          self->take(std::move(socket));
          self->accept();
        });
  }

  // Out of descriptors, accept fails at once for as long as that lasts: do not spin.
  void accept_later() {
    retry.expires_after(std::chrono::milliseconds(200));
    retry.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error) {
        self->accept();
      }
    });
  }

  void take(Socket socket) {
    auto handler = welcome(socket.native_handle());
    if (!handler || *clients >= kMaxClients) {
      log::warning_limited(
          kLog, "client",
          handler ? fmt::format("more than {} clients at once: one was closed", kMaxClients)
                  : handler.error().message);
      return;
    }
    std::make_shared<Session>(std::move(socket), *std::move(handler), clients)->read(kReadTimeout);
  }

  Acceptor acceptor;
  asio::steady_timer retry;
  const Welcome welcome;
  std::shared_ptr<std::size_t> clients = std::make_shared<std::size_t>(0);
};

HttpServer::HttpServer(asio::io_context& io, Acceptor acceptor, Welcome welcome)
    : impl_(std::make_shared<Impl>(io, std::move(acceptor), std::move(welcome))) {}

HttpServer::~HttpServer() {
  boost::system::error_code ignored;
  impl_->retry.cancel();
  impl_->acceptor.close(ignored);
}

void HttpServer::start() { impl_->accept(); }

}  // namespace tapas::daemon
