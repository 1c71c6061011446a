#pragma once

#include "base/json/json.h"
#include "base/result.h"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace tapas::ctl {

/// Speaks the operator API with tapasd over its unix socket. One connection per request; not
/// thread-safe. Every call ends by its deadline. Errors: kUnavailable (nobody answers at the
/// socket), kTimeout (no answer in time: a mutation may have happened), kIo (the answer makes no
/// sense), or the daemon's own code and message.
class Client {
 public:
  explicit Client(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  /// `target` is path and query, already escaped. The answer must carry `schema`.
  [[nodiscard]] Result<json::Value> get(std::string_view target, std::string_view schema,
                                        std::chrono::seconds deadline = kReadDeadline) const;
  /// An empty `schema` accepts any object.
  [[nodiscard]] Result<json::Value> post(std::string_view target, const json::Value& body,
                                         std::string_view schema = {},
                                         std::chrono::seconds deadline = kWriteDeadline) const;

  static constexpr std::chrono::seconds kReadDeadline{10};
  /// A replan may take the solver's own limit before it is answered.
  static constexpr std::chrono::seconds kWriteDeadline{60};

 private:
  struct Answer {
    unsigned status = 0;
    std::string body;
  };
  [[nodiscard]] Result<Answer> exchange(std::string_view method, std::string_view target,
                                        std::string body, std::chrono::seconds deadline) const;
  [[nodiscard]] Result<json::Value> read(const Answer& answer, std::string_view schema) const;

  std::string socket_path_;
};

/// Escapes a name for one path segment or query value (RFC 3986, unreserved characters stay).
[[nodiscard]] std::string url_escape(std::string_view text);

}  // namespace tapas::ctl
