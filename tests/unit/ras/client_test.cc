#include "agent/ras/client.h"

#include "fake_ras.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace tapas::agent::ras {
namespace {

using namespace std::chrono_literals;

/// Long enough for a loaded machine; only tests of hanging servers shorten them.
constexpr Limits kPatient = {60s, 60s, 1U << 20U};
constexpr Limits kHasty = {200ms, 50ms, 1U << 20U};

Result<Report> ask(const FakeRas& server, const Limits& limits = kPatient) {
  return query({"127.0.0.1", server.port()}, limits);
}

TEST(RasClient, AsksForJsonAndReadsIt) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, true)) {
      visitor.say(json_report(9, 2));
    }
  });
  const auto report = ask(server);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->nccl_version, "2.29.2");
  ASSERT_EQ(report->findings.size(), 1U);
  EXPECT_EQ(report->findings[0].kind, Kind::kLagging);
}

TEST(RasClient, TakesTextWhereNcclHasNoJson) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, false)) {
      visitor.say(text_report());
    }
  });
  const auto report = ask(server);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->nccl_version, "2.25.1");
  EXPECT_TRUE(report->findings.empty());
}

TEST(RasClient, FindsTheProcessThatAnswersBehindOneThatHangs) {
  const FakeRas server([](Visitor& visitor, int number) {
    if (number == 0) {
      visitor.hang();
    } else if (greet(visitor, false)) {
      visitor.say(text_report());
    }
  });
  const auto report = ask(server, {60s, 200ms, 1U << 20U});
  EXPECT_TRUE(report.has_value()) << report.error().message;
}

TEST(RasClient, GivesUpWhenNobodyAnswersTheGreeting) {
  const FakeRas server([](Visitor& visitor, int) { visitor.hang(); });
  const auto report = ask(server, kHasty);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kTimeout);
}

TEST(RasClient, GivesUpOnAReportThatStopsWithinALine) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, false)) {
      visitor.say("NCCL version 2.28");
      visitor.hang();
    }
  });
  const auto report = ask(server, {500ms, 60s, 1U << 20U});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kTimeout);
  EXPECT_NE(report.error().message.find("17 bytes into the report"), std::string::npos)
      << report.error().message;
}

TEST(RasClient, StopsReadingAFlood) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, true)) {
      while (visitor.say(std::string(1U << 16U, '{'))) {
      }
    }
  });
  const auto report = ask(server);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kInvalid);
  EXPECT_NE(report.error().message.find("over 1048576 bytes"), std::string::npos)
      << report.error().message;
}

TEST(RasClient, StopsReadingAGreetingWithoutAnEnd) {
  const FakeRas server([](Visitor& visitor, int) {
    while (visitor.say(std::string(1U << 16U, 'x'))) {
    }
  });
  const auto report = ask(server);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kInvalid);
}

TEST(RasClient, StopsAFloodThatNeverFillsTheLimit) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, true)) {
      while (visitor.say(" ")) {
      }
    }
  });
  const auto report = ask(server, {500ms, 60s, std::size_t{1} << 40U});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kTimeout);
}

TEST(RasClient, RefusesAnotherProtocol) {
  const FakeRas server([](Visitor& visitor, int) {
    visitor.line();
    visitor.say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  });
  const auto report = ask(server);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().message,
            server.address() +
                ": it answers \"HTTP/1.1 400 Bad Request\" to CLIENT PROTOCOL 2, not SERVER "
                "PROTOCOL: this is not NCCL's RAS");
}

TEST(RasClient, RefusesJunk) {
  std::string junk;
  for (int i = 0; i < 10'000; ++i) {
    junk += static_cast<char>((i * 7919) % 256);
  }
  const FakeRas server([junk](Visitor& visitor, int) {
    if (greet(visitor, true)) {
      visitor.say(junk);
    }
  });
  const auto report = ask(server);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kInvalid);
  for (const char c : report.error().message) {
    EXPECT_TRUE(std::isprint(static_cast<unsigned char>(c)) != 0);
  }
}

TEST(RasClient, RefusesCountsThatDoNotFit) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, true)) {
      std::string lie = json_report(9, 0);
      const std::string count = R"("ranks_count": 2)";
      visitor.say(lie.replace(lie.find(count), count.size(), R"("ranks_count": 2000000000)"));
    }
  });
  const auto report = ask(server);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kInvalid);
}

TEST(RasClient, TellsWhenTheConnectionIsClosedEarly) {
  const FakeRas at_once([](Visitor&, int) {});
  const auto nothing = ask(at_once);
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code, ErrorCode::kUnavailable);

  const FakeRas before_the_report([](Visitor& visitor, int) { greet(visitor, true); });
  const auto empty = ask(before_the_report);
  ASSERT_FALSE(empty.has_value());
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalid);

  const FakeRas within_the_report([](Visitor& visitor, int) {
    if (greet(visitor, false)) {
      const std::string whole = text_report();
      visitor.say(whole.substr(0, whole.size() / 2));
    }
  });
  const auto half = ask(within_the_report);
  ASSERT_FALSE(half.has_value());
  EXPECT_NE(half.error().message.find("cut off"), std::string::npos) << half.error().message;
}

TEST(RasClient, TellsWhenNobodyListens) {
  std::string port;
  {
    const FakeRas gone([](Visitor&, int) {});
    port = gone.port();
  }
  const auto report = query({"127.0.0.1", port}, kPatient);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tapas::agent::ras
