#pragma once

#include "base/result.h"
#include "daemon/control/asio.h"
#include "daemon/control/http_message.h"

#include <functional>
#include <memory>

namespace tapas::daemon {

/// Answers each request once, maybe later.
using HttpHandler = std::function<void(HttpRequest, HttpReply)>;

/// HTTP/1.1 on any stream socket; bodies, headers, waiting times and the number of clients are
/// bounded. Runs on the core thread's io_context. The header is private to daemon/.
class HttpServer {
 public:
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
  /// Who answers a new client, known by its socket; an error closes the connection and is logged.
  using Welcome = std::function<Result<HttpHandler>(int socket)>;

  /// `acceptor` listens already.
  HttpServer(asio::io_context& io, Acceptor acceptor, Welcome welcome);
  /// No new clients; those that are there are served to their end.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tapas::daemon
