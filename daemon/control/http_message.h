#pragma once

#include <functional>
#include <string>

namespace tapas::daemon {

struct HttpRequest {
  std::string method;
  std::string target;  ///< path and query
  std::string body;
  std::string host;  ///< the Host field; empty when there is none
};
struct HttpResponse {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
};
using HttpReply = std::function<void(HttpResponse)>;

}  // namespace tapas::daemon
