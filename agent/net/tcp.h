#pragma once

#include "base/endpoint.h"
#include "base/result.h"

#include <netdb.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

/// TCP where every wait ends at a time that the caller gives.
namespace tapas::agent {

/// A socket that does not block, closed with its owner. One thread.
class Socket {
 public:
  using Clock = std::chrono::steady_clock;

  /// kIo when the system has none.
  [[nodiscard]] static Result<Socket> like(const addrinfo& address);
  /// kUnavailable (nobody is there), kTimeout.
  [[nodiscard]] static Result<Socket> connect(const addrinfo& to, Clock::time_point until);

  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  [[nodiscard]] int fd() const { return fd_; }
  /// Until it is readable (POLLIN) or writable (POLLOUT). kTimeout when it is not in time.
  [[nodiscard]] Result<void> wait(short events, Clock::time_point until) const;
  /// All of it. kUnavailable when the connection broke, kTimeout.
  [[nodiscard]] Result<void> send(std::span<const char> bytes, Clock::time_point until) const;
  /// How many came, at least one; 0 when the other side has closed. Ends in time also when bytes
  /// keep coming. Errors as send().
  [[nodiscard]] Result<std::size_t> receive(std::span<char> into, Clock::time_point until) const;

 private:
  int fd_;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Stream addresses of a host, to connect to or with AI_PASSIVE to listen at. Only the system's
/// resolver bounds the time that this takes. kUnavailable when there is none.
[[nodiscard]] Result<Addresses> look_up(const HostPort& address, int flags = 0);

}  // namespace tapas::agent
