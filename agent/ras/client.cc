#include "agent/ras/client.h"

#include "base/clean.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace tapas::agent::ras {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxLine = 1024;  // As long as RAS's own buffer for a line.

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> look_up(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list);
      error != 0) {
    return fail(ErrorCode::kUnavailable, "no address for host {}: {}", clean(address.host),
                ::gai_strerror(error));
  }
  return Addresses(list);
}

/// One connection; every wait ends at a time that the caller gives.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Connection(Connection&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}
  Connection& operator=(Connection&&) = delete;

  static Result<Connection> open(const addrinfo& to, Clock::time_point until) {
    Connection made(
        ::socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol));
    if (made.fd_ < 0) {
      return fail(ErrorCode::kIo, "no socket: {}", std::strerror(errno));
    }
    if (::connect(made.fd_, to.ai_addr, to.ai_addrlen) != 0) {
      int error = errno;
      if (error == EINPROGRESS) {
        if (auto ready = made.wait(POLLOUT, until); !ready) {
          return tl::unexpected(ready.error());
        }
        socklen_t size = sizeof(error);
        ::getsockopt(made.fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error != 0) {
        return fail(ErrorCode::kUnavailable, "cannot connect: {}", std::strerror(error));
      }
    }
    return made;
  }

  Result<void> send(std::string_view text, Clock::time_point until) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno != EAGAIN && errno != EINTR) {
        return fail(ErrorCode::kUnavailable, "the connection broke: {}", std::strerror(errno));
      } else if (auto ready = wait(POLLOUT, until); !ready) {
        return ready;
      }
    }
    return {};
  }

  /// Without its end.
  Result<std::string> read_line(Clock::time_point until) {
    while (true) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (!line.empty() && line.back() == '\r') {
          line.pop_back();
        }
        return line;
      }
      if (buffer_.size() > kMaxLine) {
        return fail(ErrorCode::kInvalid,
                    "\"{}\" and more without an end of line: this is not NCCL's RAS",
                    clean(buffer_));
      }
      const auto more = receive(until);
      if (!more) {
        return tl::unexpected(more.error());
      }
      if (!*more) {
        return fail(ErrorCode::kUnavailable, "the connection was closed after \"{}\"",
                    clean(buffer_));
      }
    }
  }

  /// All until the other side closes.
  Result<std::string> read_rest(std::size_t max_bytes, Clock::time_point until) {
    while (buffer_.size() <= max_bytes) {
      const auto more = receive(until);
      if (!more) {
        return fail(more.error().code, "{}, {} bytes into the report", more.error().message,
                    buffer_.size());
      }
      if (!*more) {
        return std::move(buffer_);
      }
    }
    return fail(ErrorCode::kInvalid, "the report has over {} bytes", max_bytes);
  }

 private:
  Result<void> wait(short events, Clock::time_point until) {
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

  /// False when the other side has closed. Looks at the time even when bytes keep coming.
  Result<bool> receive(Clock::time_point until) {
    std::array<char, 64U << 10U> bytes;
    while (true) {
      if (auto ready = wait(POLLIN, until); !ready) {
        return tl::unexpected(ready.error());
      }
      const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (got >= 0) {
        buffer_.append(bytes.data(), static_cast<std::size_t>(got));
        return got > 0;
      }
      if (errno != EAGAIN && errno != EINTR) {
        return fail(ErrorCode::kUnavailable, "the connection broke: {}", std::strerror(errno));
      }
    }
  }

  int fd_;
  std::string buffer_;
};

/// A connection whose other side has said that it is RAS.
Result<Connection> greet(const addrinfo& to, Clock::time_point until) {
  auto connection = Connection::open(to, until);
  if (!connection) {
    return connection;
  }
  if (auto sent = connection->send("CLIENT PROTOCOL 2\n", until); !sent) {
    return tl::unexpected(sent.error());
  }
  const auto line = connection->read_line(until);
  if (!line) {
    return tl::unexpected(line.error());
  }
  if (line->rfind("SERVER PROTOCOL ", 0) != 0) {
    return fail(ErrorCode::kInvalid,
                "it answers \"{}\" to CLIENT PROTOCOL 2, not SERVER PROTOCOL: this is not NCCL's "
                "RAS",
                clean(*line));
  }
  return connection;
}

/// Tries every address, and again as long as greetings time out.
Result<Connection> connect(const addrinfo& list, const Limits& limits, Clock::time_point until) {
  while (true) {
    Error last;
    bool hangs = false;
    for (const addrinfo* to = &list; to != nullptr; to = to->ai_next) {
      auto connection = greet(*to, std::min(Clock::now() + limits.greeting, until));
      if (connection) {
        return connection;
      }
      last = connection.error();
      hangs = hangs || last.code == ErrorCode::kTimeout;
    }
    if (!hangs || Clock::now() >= until) {
      return tl::unexpected(std::move(last));
    }
  }
}

Result<std::string> ask(Connection& connection, const Limits& limits, Clock::time_point until) {
  if (auto sent = connection.send("SET FORMAT json\n", until); !sent) {
    return tl::unexpected(sent.error());
  }
  // "OK", or an error before NCCL 2.28.7, and then the report is text.
  if (const auto line = connection.read_line(until); !line) {
    return line;
  }
  if (auto sent = connection.send("VERBOSE STATUS\n", until); !sent) {
    return tl::unexpected(sent.error());
  }
  return connection.read_rest(limits.max_bytes, until);
}

Result<Report> try_query(const HostPort& address, const Limits& limits) {
  const auto list = look_up(address);
  if (!list) {
    return tl::unexpected(list.error());
  }
  const auto until = Clock::now() + limits.deadline;
  auto connection = connect(**list, limits, until);
  if (!connection) {
    return tl::unexpected(connection.error());
  }
  const auto text = ask(*connection, limits, until);
  if (!text) {
    return tl::unexpected(text.error());
  }
  return parse_report(*text);
}

}  // namespace

Result<Report> query(const HostPort& address, const Limits& limits) {
  auto report = try_query(address, limits);
  if (!report) {
    return fail_in(clean(to_string(address)), report.error());
  }
  return report;
}

}  // namespace tapas::agent::ras
