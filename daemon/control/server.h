#pragma once

#include "base/result.h"
#include "daemon/control/asio.h"

#include <memory>
#include <string>

namespace tapas::daemon {

class Api;

/// HTTP/1.1 on the operator's unix socket; bodies, headers, waiting times and the number of clients
/// are bounded. Runs on the core thread's io_context. The header is private to daemon/.
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
  struct Impl;
  explicit ControlServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace tapas::daemon
