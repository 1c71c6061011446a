#include "agent/probe/prober.h"

#include "peers.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::agent::probe {
namespace {

using namespace std::chrono_literals;

Result<Report> ask(const Pretender& peer, Clock::duration patience = 60s) {
  return probe(peer.address(), "token", small_limits(), Clock::now() + patience);
}

/// A listener up to the loads.
bool greet(Stream& stream, const Load& load = small_load()) {
  return stream.receive_line(later()) && stream.send_line(to_line(load), later());
}

void expect_error(const Result<Report>& report, ErrorCode code, const std::string& text) {
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, code) << report.error().message;
  EXPECT_NE(report.error().message.find(text), std::string::npos) << report.error().message;
}

TEST(Prober, MeasuresBothDirections) {
  Listening listener;
  const auto report = listener.probe_it();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  for (const Transfer& transfer : {report->to, report->from}) {
    EXPECT_GT(transfer.received.bytes_per_s, 0);
    EXPECT_GT(transfer.received.bytes, 64U << 10U);
    EXPECT_LE(transfer.received.bytes, 4'000'000U);  // 2 MB paced; unpaced it would be 8 MiB.
    EXPECT_GT(transfer.sent.segments, 0U);
  }
  EXPECT_GT(report->rtt_s, 0);
  EXPECT_EQ(report->interface, "lo");
  EXPECT_EQ(listener.ended(), 1);
  EXPECT_NE(listener.told().find("127.0.0.1: "), std::string::npos) << listener.told();
}

TEST(Prober, StopsAtTheBytesThatAreAllowed) {
  Listening listener;
  Limits limits = small_limits();
  limits.bytes = 100'000;
  const auto report = listener.probe_it(limits);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->to.received.bytes, 131'072U);
  EXPECT_EQ(report->from.received.bytes, 131'072U);
}

TEST(Prober, GivesUpWhenNobodyAnswers) {
  const Pretender silent(hang);
  expect_error(ask(silent, 200ms), ErrorCode::kTimeout, "no answer in time");
}

TEST(Prober, SaysHowFarItCameBeforeTheOtherSideHung) {
  const Pretender unmoved([](Stream& stream) {
    if (greet(stream)) {
      hang(stream);
    }
  });
  expect_error(ask(unmoved, 1s), ErrorCode::kTimeout, "into the load");

  const Pretender mute([](Stream& stream) {
    if (greet(stream) && receive_load(stream, small_load(), later())) {
      hang(stream);
    }
  });
  expect_error(ask(mute, 1s), ErrorCode::kTimeout, "while receiving: no answer in time, 0 bytes");
}

TEST(Prober, RefusesAnotherProtocol) {
  const Pretender ssh([](Stream& stream) {
    const auto sent = stream.send_line("SSH-2.0-OpenSSH_9.2", later());
    hang(stream);
  });
  expect_error(ask(ssh), ErrorCode::kInvalid,
               "\"SSH-2.0-OpenSSH_9.2\" is not what tapas-agent probe says");
}

TEST(Prober, RefusesALineWithoutAnEnd) {
  const Pretender endless([](Stream& stream) {
    while (stream.send(std::string(4096, 'x'), later())) {
    }
  });
  expect_error(ask(endless), ErrorCode::kInvalid, "without an end of line");
}

TEST(Prober, RefusesJunkInPlaceOfALoad) {
  const Pretender junk([](Stream& stream) {
    if (greet(stream) && receive_load(stream, small_load(), later())) {
      while (stream.send("\x1b[2Jnoise", later())) {
      }
    }
  });
  expect_error(ask(junk), ErrorCode::kInvalid, "instead of a block, 0 bytes into the load");
}

TEST(Prober, StopsAFlood) {
  const Pretender flood([](Stream& stream) {
    Load endless = small_load();
    endless.bytes_per_s.reset();
    endless.bytes = kMaxBytes;
    endless.seconds = kMaxSeconds;
    if (greet(stream) && receive_load(stream, small_load(), later())) {
      EXPECT_FALSE(send_load(stream, endless, later()).has_value());
    }
  });
  expect_error(ask(flood), ErrorCode::kInvalid, "more than the 8388608 agreed");
}

TEST(Prober, NeverDoesMoreThanItWasAllowed) {
  const Pretender greedy([](Stream& stream) {
    Load more = small_load();
    more.bytes_per_s = 2e7;
    greet(stream, more);
    hang(stream);
  });
  expect_error(ask(greedy), ErrorCode::kInvalid, "more of the link than was asked for");
}

TEST(Prober, TellsWhenTheOtherSideGoes) {
  const Pretender at_once([](Stream&) {});
  const auto nothing = ask(at_once);
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code, ErrorCode::kUnavailable);

  const Pretender within([](Stream& stream) {
    if (greet(stream) && receive_load(stream, small_load(), later())) {
      const auto sent = stream.send(std::string(1000, 'm'), later());
    }
  });
  expect_error(ask(within), ErrorCode::kUnavailable,
               "while receiving: the other side closed the connection, 1000 bytes");
}

TEST(Prober, TellsWhenNobodyListens) {
  HostPort gone;
  {
    const auto door = Door::open({"127.0.0.1", "0"});
    gone = at(*door);
  }
  expect_error(probe(gone, "token", small_limits(), later()), ErrorCode::kUnavailable,
               "Connection refused");
}

}  // namespace
}  // namespace tapas::agent::probe
