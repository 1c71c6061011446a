#pragma once

#include "base/result.h"
#include "daemon/control/asio.h"
#include "daemon/control/http.h"

#include <memory>
#include <string>

namespace tapas::daemon {

class Api;

/// The API on the operator's unix socket, where the kernel says who asks. Runs on the core thread's
/// io_context. The header is private to daemon/.
class ControlServer {
 public:
  /// Replaces a socket file that nobody listens on; the caller holds the state directory's lock. A
  /// socket that answers belongs to a living daemon and is an error. The socket is for the daemon's
  /// user and the group (empty = the daemon's own).
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> open(asio::io_context& io,
                                                                   const std::string& path,
                                                                   const std::string& group,
                                                                   Api& api);
  /// Closes and removes the socket.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  void start();

 private:
  ControlServer(std::unique_ptr<HttpServer> http, std::string path);
  std::unique_ptr<HttpServer> http_;
  const std::string path_;
};

}  // namespace tapas::daemon
