#include "daemon/control/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>

// clang-format off
#include "daemon/control/asio.h"
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
// clang-format on
#include "base/log/log.h"
#include "daemon/control/api.h"
#include "daemon/control/peer.h"

#include <fmt/format.h>

namespace tapas::daemon {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using Protocol = asio::local::stream_protocol;
using Stream = beast::basic_stream<Protocol, asio::any_io_executor>;

constexpr std::size_t kMaxClients = 64;
constexpr std::uint32_t kMaxHeaderBytes = 8U << 10U;
constexpr std::uint64_t kMaxBodyBytes = 64U << 10U;
constexpr std::chrono::seconds kReadTimeout{10};
constexpr std::chrono::seconds kIdleTimeout{60};
constexpr std::chrono::seconds kWriteTimeout{30};
constexpr std::string_view kLog = "control";

/// One client; lives as long as an operation or an open request holds it.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Protocol::socket socket, OperatorPeer peer, Api& api,
          std::shared_ptr<std::size_t> clients)
      : stream_(std::move(socket)), peer_(peer), api_(api), clients_(std::move(clients)) {
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
    const ApiRequest call{std::string(request.method_string()), std::string(request.target()),
                          std::move(request.body()), peer_};
    api_.handle(call, [self = shared_from_this(), keep_alive](ApiResponse response) {
      self->write(std::move(response), keep_alive);
    });
  }

  void write(ApiResponse answer, bool keep_alive) {
    response_.emplace(static_cast<http::status>(answer.status), 11);
    response_->set(http::field::server, "tapasd/" TAPAS_VERSION);
    response_->set(http::field::content_type, "application/json");
    response_->keep_alive(keep_alive);
    response_->body() = std::move(answer.body);
    response_->body() += '\n';
    response_->prepare_payload();
    stream_.expires_after(kWriteTimeout);
    http::async_write(
        stream_, *response_,
        [self = shared_from_this(), keep_alive](beast::error_code error, std::size_t) {
          if (!error && keep_alive) {
            self->read(kIdleTimeout);
          } else {
            beast::error_code ignored;
            self->stream_.socket().shutdown(Protocol::socket::shutdown_both, ignored);
          }
        });
  }

  Stream stream_;
  const OperatorPeer peer_;
  Api& api_;
  std::shared_ptr<std::size_t> clients_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
};

/// kConflict when somebody listens there, else the path is free afterwards.
Result<void> clear_path(asio::io_context& io, const std::string& path) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) {
    return {};
  }
  if (!S_ISSOCK(found.st_mode)) {
    return fail(ErrorCode::kConflict, "control_socket {}: a file is there that is no socket", path);
  }
  Protocol::socket probe(io);
  boost::system::error_code error;
  probe.connect(Protocol::endpoint(path), error);
  if (!error) {
    return fail(ErrorCode::kConflict,
                "control_socket {}: another daemon answers there; stop it, or choose another path",
                path);
  }
  if (unlink(path.c_str()) != 0) {
    return fail(ErrorCode::kIo, "control_socket {}: the old socket cannot be removed: {}", path,
                std::strerror(errno));
  }
  return {};
}

void give_to_group(const std::string& path, const std::string& group) {
  const std::optional<gid_t> id = group_id(group);
  if (!id) {
    log::warning(kLog, fmt::format("operator_group {} does not exist: only root and the daemon's "
                                   "user can open {}",
                                   group, path));
  } else if (chown(path.c_str(), static_cast<uid_t>(-1), *id) != 0) {
    log::warning(kLog, fmt::format("{} cannot be given to group {}: {}; make the daemon's user a "
                                   "member of it",
                                   path, group, std::strerror(errno)));
  }
}

}  // namespace

struct ControlServer::Impl : std::enable_shared_from_this<ControlServer::Impl> {
  Impl(asio::io_context& io, std::string socket_path, Api& operator_api)
      : acceptor(io), retry(io), path(std::move(socket_path)), api(operator_api) {}

  void accept() {
    acceptor.async_accept(
        [self = shared_from_this()](boost::system::error_code error, Protocol::socket socket) {
          if (error == asio::error::operation_aborted) {
            return;
          }
          if (error) {
            log::warning_limited(kLog, "accept", "no new client: " + error.message());
            return self->accept_later();
          }
          self->welcome(std::move(socket));
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

  void welcome(Protocol::socket socket) {
    const auto peer = peer_of(socket.native_handle());
    if (!peer || *clients >= kMaxClients) {
      log::warning_limited(
          kLog, "client",
          peer ? fmt::format("more than {} clients at once: one was closed", kMaxClients)
               : peer.error().message);
      return;
    }
    std::make_shared<Session>(std::move(socket), *peer, api, clients)->read(kReadTimeout);
  }

  Protocol::acceptor acceptor;
  asio::steady_timer retry;
  const std::string path;
  Api& api;
  std::shared_ptr<std::size_t> clients = std::make_shared<std::size_t>(0);
};

ControlServer::ControlServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ControlServer::~ControlServer() {
  boost::system::error_code ignored;
  impl_->retry.cancel();
  impl_->acceptor.close(ignored);
  unlink(impl_->path.c_str());
}

Result<std::unique_ptr<ControlServer>> ControlServer::open(asio::io_context& io,
                                                           const std::string& path,
                                                           const std::string& group, Api& api) {
  constexpr std::size_t kMaxPath = 107;  // sun_path of unix(7)
  if (path.empty() || path.size() > kMaxPath) {
    return fail(ErrorCode::kInvalid, "control_socket \"{}\": a path of 1 to {} bytes is wanted",
                path, kMaxPath);
  }
  if (auto ok = clear_path(io, path); !ok) {
    return tl::unexpected(ok.error());
  }
  auto impl = std::make_shared<Impl>(io, path, api);
  boost::system::error_code error;
  impl->acceptor.open(Protocol(), error);
  if (!error) {
    impl->acceptor.bind(Protocol::endpoint(path), error);
  }
  // Who may open the socket may read; what else they may do is decided by who they are.
  if (!error && chmod(path.c_str(), 0660) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  if (!error && !group.empty()) {
    give_to_group(path, group);
  }
  if (!error) {
    impl->acceptor.listen(Protocol::acceptor::max_listen_connections, error);
  }
  if (error) {
    return fail(ErrorCode::kIo, "control_socket {}: {}; does its folder exist?", path,
                error.message());
  }
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

void ControlServer::start() { impl_->accept(); }

}  // namespace tapas::daemon
