#pragma once

#include "base/result.h"
#include "daemon/control/asio.h"
#include "daemon/control/http.h"

#include <memory>
#include <string>

namespace tapas::daemon {

class Api;

/// The API for reading only, on TCP, without a login: for Prometheus, probes and a page in a
/// browser. A request whose Host is a name that this machine did not give is refused, so that no
/// web page can read it through a name of its own (DNS rebinding). Runs on the core thread's
/// io_context.
class ReadListener {
 public:
  /// `address`: "host:port", "[::1]:port"; port 0 takes any.
  [[nodiscard]] static Result<std::unique_ptr<ReadListener>> open(asio::io_context& io,
                                                                  const std::string& address,
                                                                  Api& api);
  void start() { http_->start(); }
  /// As bound: "127.0.0.1:5571".
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  ReadListener(std::unique_ptr<HttpServer> http, std::string address)
      : http_(std::move(http)), address_(std::move(address)) {}
  std::unique_ptr<HttpServer> http_;
  std::string address_;
};

}  // namespace tapas::daemon
