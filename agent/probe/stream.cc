#include "agent/probe/stream.h"

#include "base/clean.h"

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace tapas::agent::probe {

namespace {

/// What is not yet sent waits in the process, not in the kernel: it would have to leave before the
/// end of a load is seen.
constexpr int kMaxUnsentBytes = 1 << 20;
/// Peers that wait while another one is served.
constexpr int kBacklog = 4;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

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

Result<Socket> make_socket(const addrinfo& like) {
  Socket made(
      ::socket(like.ai_family, like.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, like.ai_protocol));
  if (made.fd() < 0) {
    return fail(ErrorCode::kIo, "no socket: {}", std::strerror(errno));
  }
  return made;
}

Result<Socket> connect_to(const addrinfo& to, Clock::time_point until) {
  auto made = make_socket(to);
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

}  // namespace

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

Stream::Stream(Socket socket) : socket_(std::move(socket)) {
  const int yes = 1;
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes, sizeof(kMaxUnsentBytes));
}

Result<Stream> Stream::connect(const HostPort& to, Clock::time_point until) {
  const auto list = look_up(to, 0);
  if (!list) {
    return tl::unexpected(list.error());
  }
  Error last;
  for (const addrinfo* one = list->get(); one != nullptr; one = one->ai_next) {
    auto socket = connect_to(*one, until);
    if (socket) {
      return Stream(*std::move(socket));
    }
    last = socket.error();
  }
  return tl::unexpected(std::move(last));
}

Result<void> Stream::send(std::span<const char> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "the connection broke: {}", std::strerror(errno));
    } else if (auto ready = socket_.wait(POLLOUT, until); !ready) {
      return ready;
    }
  }
  return {};
}

Result<std::size_t> Stream::receive(std::span<char> into, Clock::time_point until) {
  if (!buffer_.empty()) {
    const std::size_t size = std::min(into.size(), buffer_.size());
    std::copy_n(buffer_.begin(), size, into.begin());
    buffer_.erase(0, size);
    return size;
  }
  while (true) {
    if (Clock::now() >= until) {  // Even when bytes keep coming.
      return fail(ErrorCode::kTimeout, "no end in time");
    }
    const ssize_t got = ::recv(fd(), into.data(), into.size(), 0);
    if (got > 0) {
      return static_cast<std::size_t>(got);
    }
    if (got == 0) {
      return fail(ErrorCode::kUnavailable, "the other side closed the connection");
    }
    if (errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "the connection broke: {}", std::strerror(errno));
    }
    if (auto ready = socket_.wait(POLLIN, until); !ready) {
      return tl::unexpected(ready.error());
    }
  }
}

Result<void> Stream::send_line(const std::string& line, Clock::time_point until) {
  return send(line + '\n', until);
}

Result<std::string> Stream::receive_line(Clock::time_point until) {
  std::string line;
  std::array<char, kMaxLine> bytes;
  while (true) {
    const auto got = receive(bytes, until);
    if (!got) {
      return fail(got.error().code, "{}{}", got.error().message,
                  line.empty() ? "" : fmt::format(" after \"{}\"", clean(line)));
    }
    line.append(bytes.data(), *got);
    if (const std::size_t end = line.find('\n'); end != std::string::npos) {
      buffer_.insert(0, line, end + 1);
      line.resize(end);
      return line;
    }
    if (line.size() > kMaxLine) {
      return fail(ErrorCode::kInvalid, "\"{}\" and more without an end of line", clean(line));
    }
  }
}

Result<void> Stream::pace(double bytes_per_s) {
  const auto rate = static_cast<std::uint64_t>(bytes_per_s);
  if (::setsockopt(fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)) != 0) {
    return fail(ErrorCode::kIo, "this kernel does not pace TCP: {}", std::strerror(errno));
  }
  return {};
}

Stream::Counts Stream::counts() const {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  ::getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &size);
  return {info.tcpi_data_segs_out, info.tcpi_total_retrans, info.tcpi_min_rtt * 1e-6};
}

Result<Door> Door::open(const HostPort& at) {
  const auto list = look_up(at, AI_PASSIVE);
  if (!list) {
    return tl::unexpected(list.error());
  }
  auto made = make_socket(**list);
  if (!made) {
    return tl::unexpected(made.error());
  }
  const int yes = 1;
  ::setsockopt(made->fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(made->fd(), (*list)->ai_addr, (*list)->ai_addrlen) != 0 ||
      ::listen(made->fd(), kBacklog) != 0) {
    return fail(ErrorCode::kUnavailable, "cannot listen at {}:{}: {}", clean(at.host), at.port,
                std::strerror(errno));
  }
  return Door(*std::move(made));
}

std::uint16_t Door::port() const {
  sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  ::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&local), &size);
  // IPv4 and IPv6 have the port at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&local)->sin_port);
}

Result<std::optional<Door::Visitor>> Door::next(Clock::time_point until) {
  while (true) {
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    auto* any = reinterpret_cast<sockaddr*>(&from);  // What the call takes for every family.
    Socket taken(::accept4(socket_.fd(), any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (taken.fd() >= 0) {
      return Visitor{Stream(std::move(taken)), ip_of(any).value_or(Ip{})};
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return fail(ErrorCode::kIo, "accept: {}", std::strerror(errno));
    }
    if (const auto ready = socket_.wait(POLLIN, until); !ready) {
      if (ready.error().code == ErrorCode::kTimeout) {
        return std::nullopt;
      }
      return tl::unexpected(ready.error());
    }
  }
}

}  // namespace tapas::agent::probe
