#pragma once

#include "agent/net/tcp.h"
#include "agent/probe/ip.h"
#include "base/endpoint.h"
#include "base/result.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tapas::agent::probe {

using Clock = Socket::Clock;

/// A TCP connection whose other side is not trusted. Every wait ends at a time that the caller
/// gives. Errors: kUnavailable (it broke or was closed), kTimeout, kInvalid (a line without an
/// end). One thread.
class Stream {
 public:
  static constexpr std::size_t kMaxLine = 1024;

  /// Tries every address of the name. Only the look-up of a name is not bounded by `until`.
  [[nodiscard]] static Result<Stream> connect(const HostPort& to, Clock::time_point until);
  explicit Stream(Socket socket);

  [[nodiscard]] int fd() const { return socket_.fd(); }

  [[nodiscard]] Result<void> send(std::span<const char> bytes, Clock::time_point until);
  /// At least one byte.
  [[nodiscard]] Result<std::size_t> receive(std::span<char> into, Clock::time_point until);
  [[nodiscard]] Result<void> send_line(const std::string& line, Clock::time_point until);
  /// Without its end.
  [[nodiscard]] Result<std::string> receive_line(Clock::time_point until);

  /// How fast what is sent may leave, in bytes per second.
  [[nodiscard]] Result<void> pace(double bytes_per_s);

  struct Counts {
    std::uint64_t segments = 0;     ///< Sent with data, each time.
    std::uint64_t retransmits = 0;  ///< Of them, those that were sent again.
    double least_rtt_s = 0;
  };
  /// What the kernel counted since the connection began.
  [[nodiscard]] Counts counts() const;

 private:
  Socket socket_;
  std::string buffer_;  ///< Came with a line, behind its end.
};

/// Where connections come in.
class Door {
 public:
  [[nodiscard]] static Result<Door> open(const HostPort& at);

  [[nodiscard]] std::uint16_t port() const;

  struct Visitor {
    Stream stream;
    Ip from = {};
  };
  /// Nothing when nobody came in time.
  [[nodiscard]] Result<std::optional<Visitor>> next(Clock::time_point until);

 private:
  explicit Door(Socket socket) : socket_(std::move(socket)) {}

  Socket socket_;
};

}  // namespace tapas::agent::probe
