#include "agent/probe/stream.h"

#include "base/clean.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tapas::agent::probe {

namespace {

/// What is not yet sent waits in the process, not in the kernel: it would have to leave before the
/// end of a load is seen.
constexpr int kMaxUnsentBytes = 1 << 20;
/// Peers that wait while another one is served.
constexpr int kBacklog = 4;

}  // namespace

Stream::Stream(Socket socket) : socket_(std::move(socket)) {
  const int yes = 1;
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes, sizeof(kMaxUnsentBytes));
}

Result<Stream> Stream::connect(const HostPort& to, Clock::time_point until) {
  const auto list = look_up(to);
  if (!list) {
    return tl::unexpected(list.error());
  }
  Error last;
  for (const addrinfo* one = list->get(); one != nullptr; one = one->ai_next) {
    auto socket = Socket::connect(*one, until);
    if (socket) {
      return Stream(*std::move(socket));
    }
    last = socket.error();
  }
  return tl::unexpected(std::move(last));
}

Result<void> Stream::send(std::span<const char> bytes, Clock::time_point until) {
  return socket_.send(bytes, until);
}

Result<std::size_t> Stream::receive(std::span<char> into, Clock::time_point until) {
  if (!buffer_.empty()) {
    const std::size_t size = std::min(into.size(), buffer_.size());
    std::copy_n(buffer_.begin(), size, into.begin());
    buffer_.erase(0, size);
    return size;
  }
  const auto got = socket_.receive(into, until);
  if (got && *got == 0) {
    return fail(ErrorCode::kUnavailable, "the other side closed the connection");
  }
  return got;
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
  auto made = Socket::like(**list);
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
