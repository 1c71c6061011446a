#include "agent/ras/client.h"

#include "agent/net/tcp.h"
#include "base/clean.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tapas::agent::ras {

namespace {

using Clock = Socket::Clock;

constexpr std::size_t kMaxLine = 1024;  // As long as RAS's own buffer for a line.

/// What RAS says over a socket.
class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  Result<void> send(std::string_view text, Clock::time_point until) {
    return socket_.send(text, until);
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
  /// False when the other side has closed.
  Result<bool> receive(Clock::time_point until) {
    std::array<char, 64U << 10U> bytes;
    const auto got = socket_.receive(bytes, until);
    if (!got) {
      return tl::unexpected(got.error());
    }
    buffer_.append(bytes.data(), *got);
    return *got > 0;
  }

  Socket socket_;
  std::string buffer_;
};

/// A connection whose other side has said that it is RAS.
Result<Connection> greet(const addrinfo& to, Clock::time_point until) {
  auto socket = Socket::connect(to, until);
  if (!socket) {
    return tl::unexpected(socket.error());
  }
  Connection connection(*std::move(socket));
  if (auto sent = connection.send("CLIENT PROTOCOL 2\n", until); !sent) {
    return tl::unexpected(sent.error());
  }
  const auto line = connection.read_line(until);
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
