#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Real programs in tests: started, watched and stopped by their process id, in a folder of their
/// own, on loopback.
namespace tapas::test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A slow machine under a sanitizer is no failure: waits are long, and end as soon as they can.
inline constexpr std::chrono::seconds kPatience{30};

[[nodiscard]] inline bool eventually(const std::function<bool()>& condition,
                                     Clock::duration patience = kPatience) {
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(50ms);
  }
  return condition();
}

class TempDir {
 public:
  TempDir() {
    // Short, as the path of a unix socket may have 107 bytes only.
    std::string pattern = "/tmp/tapas-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A port that was free a moment ago, below the ephemeral range, where a client could otherwise
/// connect to itself.
inline std::uint16_t free_port() {
  static std::uint32_t next = static_cast<std::uint32_t>(getpid()) * 37U;
  for (;;) {
    const auto port = static_cast<std::uint16_t>(20000U + next++ % 10000U);
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(probe);
    if (free) {
      return port;
    }
  }
}

/// A child process. Its output goes to a file; it is killed with this object, and with the test.
class Process {
 public:
  Process(std::vector<std::string> command, std::string output,
          const std::vector<std::pair<std::string, std::string>>& environment = {})
      : output_(std::move(output)) {
    int input[2];
    if (pipe2(input, O_CLOEXEC) != 0) {
      std::abort();
    }
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(input[0], STDIN_FILENO);
      const int file = open(output_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      for (const auto& [name, value] : environment) {
        setenv(name.c_str(), value.c_str(), 1);
      }
      std::vector<char*> arguments;
      for (std::string& word : command) {
        arguments.push_back(word.data());
      }
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      std::perror(arguments[0]);
      _exit(127);
    }
    close(input[0]);
    input_ = input[1];
  }
  ~Process() {
    kill_now();
    close(input_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string output() const { return read_file(output_); }

  /// A line on the child's standard input.
  void say(const std::string& line) const {
    const std::string text = line + "\n";
    if (write(input_, text.data(), text.size()) < 0) {
      std::perror("write to child");
    }
  }

  [[nodiscard]] bool running() { return !exit_code(); }

  /// 128 + signal when a signal ended it; nothing while it runs.
  [[nodiscard]] std::optional<int> exit_code() {
    int status = 0;
    if (!code_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return code_;
  }

  [[nodiscard]] std::optional<int> wait_exit(Clock::duration patience = kPatience) {
    static_cast<void>(eventually([this] { return !running(); }, patience));
    return code_;
  }

  void signal(int number) {
    if (running()) {
      kill(pid_, number);
    }
  }

  [[nodiscard]] std::optional<int> stop() {
    signal(SIGTERM);
    return wait_exit();
  }

  void kill_now() {
    if (running()) {
      kill(pid_, SIGKILL);
      static_cast<void>(wait_exit());
    }
  }

 private:
  std::string output_;
  pid_t pid_ = -1;
  int input_ = -1;
  std::optional<int> code_;
};

inline std::string program(const std::string& name) {
  return std::string(TAPAS_PROGRAM_DIR) + "/" + name;
}

}  // namespace tapas::test
