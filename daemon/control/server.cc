#include "daemon/control/server.h"

#include "base/log/log.h"
#include "daemon/control/api.h"
#include "daemon/control/peer.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace tapas::daemon {
namespace {

using Protocol = asio::local::stream_protocol;

constexpr std::string_view kLog = "control";

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

ControlServer::ControlServer(std::unique_ptr<HttpServer> http, std::string path)
    : http_(std::move(http)), path_(std::move(path)) {}

ControlServer::~ControlServer() {
  http_.reset();
  unlink(path_.c_str());
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
  HttpServer::Acceptor acceptor(io);
  boost::system::error_code error;
  acceptor.open(Protocol(), error);
  if (!error) {
    acceptor.bind(Protocol::endpoint(path), error);
  }
  // Who may open the socket may read; what else they may do is decided by who they are.
  if (!error && chmod(path.c_str(), 0660) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  if (!error && !group.empty()) {
    give_to_group(path, group);
  }
  if (!error) {
    acceptor.listen(HttpServer::Acceptor::max_listen_connections, error);
  }
  if (error) {
    return fail(ErrorCode::kIo, "control_socket {}: {}; does its folder exist?", path,
                error.message());
  }
  auto http = std::make_unique<HttpServer>(
      io, std::move(acceptor), [&api](int socket) -> Result<HttpHandler> {
        const auto peer = peer_of(socket);
        if (!peer) {
          return tl::unexpected(peer.error());
        }
        return [&api, peer = *peer](HttpRequest request, HttpReply reply) {
          api.handle(request, peer, std::move(reply));
        };
      });
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(http), path));
}

void ControlServer::start() { http_->start(); }

}  // namespace tapas::daemon
