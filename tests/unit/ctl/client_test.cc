#include "ctl/client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

namespace tapas::ctl {
namespace {

/// Answers one connection with fixed bytes: what a broken or foreign server might send.
class OneAnswer {
 public:
  /// An empty answer means: accept, read, say nothing and keep the connection.
  explicit OneAnswer(std::string answer, bool close_early = false) {
    path_ = testing::TempDir() + "tapas-client-" + std::to_string(::getpid()) + "-" +
            std::to_string(++made) + ".sock";
    ::unlink(path_.c_str());
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    // sockaddr is what the call takes for every family.
    const auto* any = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, any, sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    thread_ = std::thread([this, answer = std::move(answer), close_early] {
      const int peer = ::accept(listener_, nullptr, nullptr);
      char buffer[4096];
      const ssize_t got = ::recv(peer, buffer, sizeof(buffer), 0);
      request_.assign(buffer, got > 0 ? static_cast<std::size_t>(got) : 0);
      if (!answer.empty()) {
        EXPECT_GT(::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
      }
      if (!close_early && answer.empty()) {
        pollfd until_closed{peer, POLLIN, 0};
        ::poll(&until_closed, 1, 10'000);
      }
      ::close(peer);
    });
  }
  ~OneAnswer() {
    thread_.join();
    ::close(listener_);
    ::unlink(path_.c_str());
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Requires that the client has its answer.
  [[nodiscard]] const std::string& request() const { return request_; }

 private:
  static inline int made = 0;
  std::string path_;
  std::string request_;
  int listener_ = -1;
  std::thread thread_;
};

std::string http(unsigned status, const std::string& body) {
  return fmt::format(
      "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, body.size(), body);
}

TEST(Client, ReadsAnAnswerOfTheSchemaAskedFor) {
  OneAnswer server(http(200, R"({"schema":"tapas.status/1","term":7})"));
  const auto answer = Client(server.path()).get("/v1/status", "tapas.status/1");
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ((*answer)["term"], 7);
  EXPECT_EQ(server.request().rfind("GET /v1/status HTTP/1.1\r\n", 0), 0U) << server.request();
}

TEST(Client, RefusesAnswersOfAnotherSchema) {
  OneAnswer server(http(200, R"({"schema":"tapas.status/2"})"));
  const auto answer = Client(server.path()).get("/v1/status", "tapas.status/1");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kIo);
}

TEST(Client, PassesTheDaemonsErrorOn) {
  OneAnswer server(http(
      404, R"({"schema":"tapas.error/1","error":{"code":"not_found","message":"no node x"}})"));
  const auto answer = Client(server.path()).post("/v1/nodes/x/drain", {{"reason", "fan"}});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(answer.error().message, "no node x");
  EXPECT_NE(server.request().find("\r\n\r\n{\"reason\":\"fan\"}"), std::string::npos)
      << server.request();
}

TEST(Client, SaysThatNobodyListens) {
  const auto answer =
      Client(testing::TempDir() + "tapas-nobody.sock").get("/v1/status", "tapas.status/1");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
}

TEST(Client, RefusesSocketPathsThatTheSystemCannotHold) {
  const auto answer = Client("/" + std::string(200, 'x')).get("/v1/status", "tapas.status/1");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kInvalid);
}

TEST(Client, GivesUpAtTheDeadline) {
  OneAnswer server("");
  const auto answer =
      Client(server.path()).get("/v1/status", "tapas.status/1", std::chrono::seconds(1));
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kTimeout);
}

TEST(Client, NoticesAServerThatHangsUp) {
  OneAnswer server("", true);
  const auto answer = Client(server.path()).get("/v1/status", "tapas.status/1");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
}

TEST(Client, SurvivesAnswersThatAreNotHttpOrNotJson) {
  for (const std::string& garbage :
       {std::string("220 smtp ready\r\n\r\n"), http(200, "<html>"), http(500, "oops"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")}) {
    OneAnswer server(garbage);
    const auto answer = Client(server.path()).get("/v1/status", "tapas.status/1");
    ASSERT_FALSE(answer.has_value()) << garbage;
    EXPECT_EQ(answer.error().code, ErrorCode::kIo) << garbage;
  }
}

TEST(UrlEscape, LeavesNamesAndEscapesTheRest) {
  EXPECT_EQ(url_escape("a800-037.pod_1"), "a800-037.pod_1");
  EXPECT_EQ(url_escape("a/b?c d\xC3\xA9"), "a%2Fb%3Fc%20d%C3%A9");
}

}  // namespace
}  // namespace tapas::ctl
