#include "agent/health/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

namespace tapas::agent::health {
namespace {

using Clock = std::chrono::steady_clock;

/// What the child sends: a kind, the length of the text, the text. An error's first byte is its
/// code.
enum class Kind : std::uint8_t { kStep, kResult, kError };
constexpr std::size_t kHeaderBytes = 1 + sizeof(std::uint32_t);
constexpr std::size_t kMaxStepBytes = 256;
constexpr std::chrono::seconds kGrace{1};

/// False when nobody listens any more.
bool send(int fd, Kind kind, std::string_view text) {
  std::string bytes(1, static_cast<char>(kind));
  const auto size = static_cast<std::uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(text);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t more = ::write(fd, bytes.data() + sent, bytes.size() - sent);
    if (more > 0) {
      sent += static_cast<std::size_t>(more);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// The child's life. It must not return into the parent's code, whatever happens.
[[noreturn]] void live(const Work& work, int fd, pid_t parent) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(EXIT_FAILURE);
  }
  for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGPIPE}) {
    std::signal(fatal, SIG_DFL);  // A sanitizer's handler would hide how the child died.
  }
  // What a driver's library prints is no part of the report.
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  auto result = work([fd](std::string_view step) {
    if (!send(fd, Kind::kStep, step.substr(0, kMaxStepBytes))) {
      ::_exit(EXIT_FAILURE);
    }
  });
  if (result && result->size() > kMaxAnswerBytes) {
    result = fail(ErrorCode::kIo, "has more than {} bytes to tell", kMaxAnswerBytes);
  }
  const bool sent = result ? send(fd, Kind::kResult, *result)
                           : send(fd, Kind::kError,
                                  static_cast<char>(result.error().code) + result.error().message);
  ::_exit(sent ? EXIT_SUCCESS : EXIT_FAILURE);
}

/// What came out of the pipe.
struct Heard {
  std::string step = "its start";
  std::optional<Result<std::string>> answer;
  bool late = false;
};

/// Takes whole messages off the front of `bytes`; false when they are none.
bool take_messages(std::string& bytes, Heard& heard) {
  while (bytes.size() >= kHeaderBytes && !heard.answer) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + 1, sizeof(size));
    const auto kind = static_cast<Kind>(bytes.front());
    if (kind > Kind::kError || size > kMaxAnswerBytes || (kind == Kind::kError && size == 0)) {
      return false;
    }
    if (bytes.size() - kHeaderBytes < size) {
      return true;
    }
    std::string text = bytes.substr(kHeaderBytes, size);
    bytes.erase(0, kHeaderBytes + size);
    if (kind == Kind::kStep) {
      heard.step = std::move(text);
    } else if (kind == Kind::kResult) {
      heard.answer = std::move(text);
    } else {
      heard.answer = fail(static_cast<ErrorCode>(text.front()), "{}", text.substr(1));
    }
  }
  return true;
}

Heard listen(int fd, Clock::time_point end) {
  Heard heard;
  std::string bytes;
  std::array<char, 65536> buffer = {};
  while (!heard.answer) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    struct pollfd readable = {fd, POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&readable, 1, static_cast<int>(left.count())) : 0;
    if (ready == 0) {
      heard.late = true;
      break;
    }
    const ssize_t got = ready > 0 ? ::read(fd, buffer.data(), buffer.size()) : -1;
    if (got == 0 || (got < 0 && errno != EINTR)) {
      break;
    }
    bytes.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (!take_messages(bytes, heard)) {
      break;
    }
  }
  return heard;
}

/// How the child ended; empty when the kernel still holds it.
std::optional<int> reap(pid_t child) {
  const auto end = Clock::now() + kGrace;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) {
      return status;
    }
    if ((ended < 0 && errno != EINTR) || Clock::now() >= end) {
      return std::nullopt;
    }
    // No wait with a limit for one child works on every kernel and leaves signals alone.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("crashed ({})", ::strsignal(WTERMSIG(status)))
                             : fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Result<std::string> in_child(const Work& work, std::chrono::milliseconds limit) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kIo, "the system gives no pipe: {}", std::strerror(errno));
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    live(work, ends[1], parent);
  }
  const int fork_error = errno;
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return fail(ErrorCode::kIo, "the system gives no process: {}", std::strerror(fork_error));
  }
  Heard heard = listen(ends[0], Clock::now() + limit);
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  const auto status = reap(child);
  if (heard.answer) {
    return *std::move(heard.answer);
  }
  if (heard.late) {
    return fail(ErrorCode::kTimeout, "did not answer within {:g} s, at {}{}",
                std::chrono::duration<double>(limit).count(), heard.step,
                status ? ""
                       : fmt::format("; process {} cannot be killed, the kernel waits for a device",
                                     child));
  }
  return fail(ErrorCode::kUnavailable, "{} at {}",
              status ? how_it_ended(*status) : "gave no answer", heard.step);
}

}  // namespace tapas::agent::health
