#include "agent/probe/listener.h"

#include "peers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace tapas::agent::probe {
namespace {

using namespace std::chrono_literals;

std::string hello(const std::string& token) { return to_line(Hello{token, {}, small_limits()}); }

/// Every test ends with a probe: whoever came before, the listener still serves.
void expect_served(Listening& listener) {
  const auto report = listener.probe_it();
  EXPECT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(listener.ended(), 1);
}

TEST(ProbeListener, TurnsAwayWhoDoesNotKnowTheToken) {
  Listening listener;
  std::string nearly = listener.token();
  nearly.back() = nearly.back() == '0' ? '1' : '0';
  for (const std::string& wrong : {std::string(), std::string("guess"), nearly,
                                   listener.token() + "0", listener.token().substr(1)}) {
    const auto report = probe(listener.address(), wrong, small_limits(), later());
    ASSERT_FALSE(report.has_value()) << wrong;
    EXPECT_EQ(report.error().code, ErrorCode::kDenied);
    EXPECT_NE(report.error().message.find("wrong token"), std::string::npos);
  }
  expect_served(listener);
  EXPECT_NE(listener.told().find("127.0.0.1: turned away: wrong token"), std::string::npos)
      << listener.told();
  EXPECT_EQ(listener.told().find(listener.token()), std::string::npos);
}

TEST(ProbeListener, TurnsAwayWhoIsNotAllowedBeforeAnyWord) {
  Listening listener({*IpRange::parse("127.0.0.2"), *IpRange::parse("10.0.0.0/8")});
  const auto report = listener.probe_it();
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kUnavailable);

  // The one that is allowed: another address of loopback.
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  ASSERT_EQ(::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(listener.address().port)));
  ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  Stream allowed(std::move(socket));
  ASSERT_TRUE(allowed.send_line(hello(listener.token()), later()));
  EXPECT_TRUE(parse_load(allowed.receive_line(later()).value_or("")).has_value());
}

TEST(ProbeListener, GoesOnAfterStrangers) {
  Listening listener;
  {
    Stream junk = listener.visit();
    ASSERT_TRUE(junk.send_line("GET / HTTP/1.1", later()));
    const auto answer = parse_load(junk.receive_line(later()).value_or(""));
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::kDenied);
  }
  {
    Stream endless = listener.visit();
    while (endless.send(std::string(4096, 'x'), later())) {
    }
  }
  { const Stream gone = listener.visit(); }
  // Of whom nothing is heard is left in its turn.
  const Stream silent = listener.visit();
  expect_served(listener);
}

TEST(ProbeListener, ServesOneAfterTheOther) {
  Listening listener;
  std::optional<Stream> half = listener.visit();
  ASSERT_TRUE(half->send(hello("x").substr(0, 10), later()));
  Stream second = listener.visit();
  ASSERT_TRUE(second.send_line(hello(listener.token()), later()));
  const auto early = second.receive_line(Clock::now() + 200ms);
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, ErrorCode::kTimeout);
  half.reset();
  EXPECT_TRUE(parse_load(second.receive_line(later()).value_or("")).has_value());
}

TEST(ProbeListener, KeepsToItsOwnLimits) {
  Listening listener;
  Limits greedy = small_limits();
  greedy.bytes_per_s.reset();
  greedy.seconds = kMaxSeconds;
  greedy.bytes = kMaxBytes;
  const auto report = listener.probe_it(greedy);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->load.bytes_per_s, small_limits().bytes_per_s);
  EXPECT_EQ(report->load.seconds, small_limits().seconds);
  EXPECT_EQ(report->load.bytes, small_limits().bytes);
}

TEST(ProbeListener, StopsAPeerThatSendsMoreThanAgreed) {
  Listening listener;
  Stream flood = listener.visit();
  ASSERT_TRUE(flood.send_line(hello(listener.token()), later()));
  ASSERT_TRUE(parse_load(flood.receive_line(later()).value_or("")).has_value());
  Load more = small_load();
  more.bytes_per_s.reset();
  more.bytes = kMaxBytes;
  more.seconds = kMaxSeconds;
  EXPECT_FALSE(send_load(flood, more, later()).has_value());
  EXPECT_EQ(listener.ended(), 0);
  EXPECT_NE(listener.told().find("more than the 8388608 agreed"), std::string::npos)
      << listener.told();
}

TEST(ProbeListener, LetsGoOfAPeerThatNeverReads) {
  Listening listener;
  Stream deaf = listener.visit();
  ASSERT_TRUE(deaf.send_line(hello(listener.token()), later()));
  ASSERT_TRUE(parse_load(deaf.receive_line(later()).value_or("")).has_value());
  ASSERT_TRUE(send_load(deaf, small_load(), later()).has_value());
  EXPECT_EQ(listener.ended(), 0);
  EXPECT_NE(listener.told().find("while sending: no answer in time"), std::string::npos)
      << listener.told();
}

TEST(ProbeListener, EndsWithItsTime) {
  auto door = Door::open({"127.0.0.1", "0"});
  Service service;
  service.token = *make_token();
  service.until = Clock::now() + 50ms;
  const auto done = serve(*door, service, [](const std::string&) {});
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(*done, 0);
}

TEST(ProbeToken, IsAnotherOneEachTime) {
  const std::string token = *make_token();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(token, *make_token());
}

}  // namespace
}  // namespace tapas::agent::probe
