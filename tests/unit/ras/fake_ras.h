#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tapas::agent::ras {

/// One connection, seen from the server.
class Visitor {
 public:
  explicit Visitor(int fd) : fd_(fd) {}
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  ~Visitor() { ::close(fd_); }

  /// Without its end; "" when the client has gone.
  std::string line() {
    std::string text;
    char c = 0;
    while (::recv(fd_, &c, 1, 0) == 1 && c != '\n') {
      text += c;
    }
    return text;
  }
  /// False when the client has gone.
  bool say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        return false;
      }
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Says nothing until the client goes.
  void hang() {
    while (!line().empty()) {
    }
  }

 private:
  int fd_;
};

/// Serves on a free loopback port, one connection after the other, until it is destroyed.
class FakeRas {
 public:
  /// Gets each connection and its number, from 0.
  using Manner = std::function<void(Visitor&, int)>;

  explicit FakeRas(Manner manner) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);  // What the calls take for every family.
    EXPECT_EQ(::bind(listener_, any, size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, any, &size), 0);
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, manner = std::move(manner)] {
      for (int number = 0;; ++number) {
        const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) {
          return;
        }
        Visitor visitor(fd);
        manner(visitor, number);
      }
    });
  }
  /// Requires that every client has closed its connection.
  ~FakeRas() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  FakeRas(const FakeRas&) = delete;
  FakeRas& operator=(const FakeRas&) = delete;

  [[nodiscard]] const std::string& port() const { return port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + port_; }

 private:
  int listener_ = -1;
  std::string port_;
  std::thread thread_;
};

/// What NCCL answers up to the report; false when the client does not get that far.
inline bool greet(Visitor& visitor, bool json) {
  return visitor.line() == "CLIENT PROTOCOL 2" && visitor.say("SERVER PROTOCOL 2\n") &&
         visitor.line() == "SET FORMAT json" &&
         visitor.say(json ? "OK\n" : "ERROR: Unknown command SET FORMAT json\n") &&
         visitor.line() == "VERBOSE STATUS";
}

/// A job of one process.
inline std::string text_report(std::string_view errors = "") {
  return "NCCL version 2.25.1 compiled with CUDA 12.8\n"
         "CUDA runtime version 12080, driver version 12080\n\n"
         "Job summary\n===========\n\n"
         "  Nodes  Processes         GPUs  Processes     GPUs\n"
         "(total)   per node  per process    (total)  (total)\n"
         "      1          1            1          1        1\n\n"
         "Communicators... (0.00s)\n=============\n\n"
         "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
         "    #  in group  per comm  per node  per comm  in group\n"
         "    0         1         1         1         1         1   RUNNING      OK\n\n"
         "Errors\n======\n\n" +
         std::string(errors) + "Warnings\n========\n\n";
}

/// Two ranks, the second one `behind` operations behind the first.
inline std::string json_report(int launched, int behind) {
  const auto rank = [](int number, int count) {
    return R"({"rank": )" + std::to_string(number) +
           R"(, "host": "10.1.0.1", "pid": 7, "cuda_dev": 0, "nvml_dev": 0, "status": {)"
           R"("init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false,)"
           R"("abort_flag": false}, "collective_counts": {"AllReduce": )" +
           std::to_string(count) + "}}";
  };
  return R"({"nccl_version": "2.29.2", "communicators_count": 1, "communicators": [{)"
         R"("hash": "0xfeed", "size": 2, "ranks_count": 2, "missing_ranks_count": 0, "ranks": [)" +
         rank(0, launched) + "," + rank(1, launched - behind) +
         R"(], "missing_ranks": []}], "ras": {"timeouts_count": 0}})";
}

}  // namespace tapas::agent::ras
