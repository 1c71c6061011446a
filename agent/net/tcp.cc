#include "agent/net/tcp.h"

#include "base/clean.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tapas::agent {

Result<Socket> Socket::like(const addrinfo& address) {
  Socket made(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                       address.ai_protocol));
  if (made.fd() < 0) {
    return fail(ErrorCode::kIo, "no socket: {}", std::strerror(errno));
  }
  return made;
}

Result<Socket> Socket::connect(const addrinfo& to, Clock::time_point until) {
  auto made = like(to);
  if (!made) {
    return made;
  }
  int error = ::connect(made->fd(), to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    if (auto ready = made->wait(POLLOUT, until); !ready) {
      return tl::unexpected(ready.error());
    }
    socklen_t size = sizeof(error);
    ::getsockopt(made->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) {
    return fail(ErrorCode::kUnavailable, "cannot connect: {}", std::strerror(error));
  }
  return made;
}

Socket::~Socket() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Result<void> Socket::wait(short events, Clock::time_point until) const {
  pollfd waited = {fd_, events, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  const int ready = left.count() <= 0 ? 0 : ::poll(&waited, 1, static_cast<int>(left.count()));
  if (ready == 0) {
    return fail(ErrorCode::kTimeout, "no answer in time");
  }
  if (ready < 0 && errno != EINTR) {
    return fail(ErrorCode::kIo, "poll: {}", std::strerror(errno));
  }
  return {};
}

Result<void> Socket::send(std::span<const char> bytes, Clock::time_point until) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "the connection broke: {}", std::strerror(errno));
    } else if (auto ready = wait(POLLOUT, until); !ready) {
      return ready;
    }
  }
  return {};
}

Result<std::size_t> Socket::receive(std::span<char> into, Clock::time_point until) const {
  while (true) {
    if (Clock::now() >= until) {
      return fail(ErrorCode::kTimeout, "no answer in time");
    }
    const ssize_t got = ::recv(fd_, into.data(), into.size(), 0);
    if (got >= 0) {
      return static_cast<std::size_t>(got);
    }
    if (errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "the connection broke: {}", std::strerror(errno));
    }
    if (auto ready = wait(POLLIN, until); !ready) {
      return tl::unexpected(ready.error());
    }
  }
}

Result<Addresses> look_up(const HostPort& address, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list);
      error != 0) {
    return fail(ErrorCode::kUnavailable, "no address for host {}: {}", clean(address.host),
                ::gai_strerror(error));
  }
  return Addresses(list);
}

}  // namespace tapas::agent
