#include "daemon/control/listener.h"

#include "daemon/control/api.h"
#include "tests/unit/daemon/fixtures.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace tapas::daemon {
namespace {

/// A listener on any port of loopback, served by a thread of its own.
class Listening {
 public:
  Listening() {
    auto opened = ReadListener::open(io_, "127.0.0.1:0", api_);
    EXPECT_TRUE(opened) << opened.error().message;
    listener_ = *std::move(opened);
    listener_->start();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Listening() {
    io_.stop();
    thread_.join();
  }

  [[nodiscard]] std::string ask(const std::string& method, const std::string& target,
                                const std::string& host) {
    const std::string& address = listener_->address();
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    socket.connect({asio::ip::make_address("127.0.0.1"),
                    static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)))});
    asio::write(socket, asio::buffer(method + " " + target + " HTTP/1.1\r\nHost: " + host +
                                     "\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"));
    std::string answer;
    boost::system::error_code end;
    asio::read(socket, asio::dynamic_buffer(answer), end);
    return answer;
  }
  [[nodiscard]] const std::string& address() const { return listener_->address(); }
  [[nodiscard]] int submitted() const { return submitted_; }

 private:
  TempDir dir_;
  std::unique_ptr<Store> store_ = Store::open({dir_.path()}, tiny_jobs()).value();
  int submitted_ = 0;
  Api api_{{.status = [] { return StatusView(); },
            .wire = [] { return WireView(); },
            .rejected = [] { return std::map<std::string, std::uint64_t>(); },
            .plan = [](const std::string&) { return tiny_plan(1); },
            .submit = [this](const OperatorCommand&) { ++submitted_; },
            .store = store_.get(),
            .post = [this](std::function<void()> work) { asio::post(io_, std::move(work)); }},
           tiny_jobs(),
           ""};
  asio::io_context io_{1};
  std::unique_ptr<ReadListener> listener_;
  std::thread thread_;
};

TEST(ReadListener, ServesProbesMetricsAndReading) {
  Listening server;
  EXPECT_NE(server.ask("GET", "/livez", server.address()).find("200 OK"), std::string::npos);
  EXPECT_NE(server.ask("GET", "/readyz", "localhost").find("200 OK"), std::string::npos);
  EXPECT_NE(server.ask("GET", "/metrics", "[::1]:80").find("tapas_build_info"), std::string::npos);
  const std::string status = server.ask("GET", "/v1/status", "127.0.0.1");
  EXPECT_NE(status.find("tapas.status/1"), std::string::npos);
  EXPECT_NE(status.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(server.ask("GET", "/favicon.ico", "localhost").find("404"), std::string::npos);
}

TEST(ReadListener, ChangesNothing) {
  Listening server;
  for (const char* target : {"/v1/auto", "/v1/nodes/node-0/drain", "/v1/jobs/gpt-tiny/replan"}) {
    const std::string answer = server.ask("POST", target, "localhost");
    EXPECT_NE(answer.find("403"), std::string::npos) << answer;
    EXPECT_NE(answer.find("control_socket"), std::string::npos) << answer;
  }
  EXPECT_EQ(server.submitted(), 0);
}

TEST(ReadListener, AnswersNobodyWhoCameByANameThatIsNotOurs) {
  Listening server;
  for (const char* host : {"evil.example", "evil.example:5571", "127.0.0.1.evil.example", ""}) {
    const std::string answer = server.ask("GET", "/v1/status", host);
    EXPECT_NE(answer.find("403"), std::string::npos) << host << ": " << answer;
    EXPECT_EQ(answer.find("tapas.status"), std::string::npos) << host;
  }
}

TEST(ReadListener, SaysWhyItCannotListen) {
  Listening server;
  asio::io_context io;
  Api api({}, tiny_jobs(), "");
  const auto taken = ReadListener::open(io, server.address(), api);
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find(server.address()), std::string::npos);
  for (const char* bad : {"nonsense", "127.0.0.1:", "127.0.0.1:99999", "no.such.host.invalid:80"}) {
    const auto refused = ReadListener::open(io, bad, api);
    ASSERT_FALSE(refused) << bad;
    EXPECT_NE(refused.error().message.find(bad), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace tapas::daemon
