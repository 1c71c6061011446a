#include "base/ids.h"
#include "tests/system/cluster.h"
#include "wire/record_codec.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

namespace tapas::test {
namespace {

std::string noise(std::mt19937& random, std::size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  return bytes;
}

wire::Telemetry one_step(const std::string& node) {
  wire::StepRecord record;
  record.job = name_hash("gpt-tiny");
  record.node = name_hash(node);
  wire::Telemetry telemetry;
  wire::append_record(record, telemetry.records);
  return telemetry;
}

/// An agent with a good key that does not keep to the protocol.
class HostilePeer : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.start()) << cluster_.log();
    rogue_ = std::make_unique<WireClient>(cluster_, cluster_.key("n1"));
    rogue_->send(hello_of("n1"));
    ASSERT_TRUE(rogue_->receive_a<wire::Welcome>()) << cluster_.log();
  }

  /// The daemon lives, and serves everybody else.
  void expect_unharmed() {
    EXPECT_TRUE(cluster_.daemon->running()) << cluster_.log();
    WireClient good(cluster_, cluster_.key("n2"));
    good.send(hello_of("n2"));
    EXPECT_TRUE(good.receive_a<wire::Welcome>()) << cluster_.log();
    EXPECT_EQ(cluster_.get("/v1/status").status, 200);
    EXPECT_EQ(cluster_.daemon->stop(), 0) << cluster_.log();
  }

  Cluster cluster_{{"n1", "n2"}};
  std::unique_ptr<WireClient> rogue_;
  std::mt19937 random_{7};
};

TEST_F(HostilePeer, SendsTenThousandMessagesOfNoise) {
  constexpr int kMessages = 10'000;
  std::size_t log_before = cluster_.log().size();
  for (int i = 0; i < kMessages; ++i) {
    std::vector<std::string> frames(1 + random_() % 3);
    for (std::string& frame : frames) {
      frame = noise(random_, random_() % 200);
    }
    rogue_->send_raw(frames);
  }
  // The quota cuts a part of the flood off before it is looked at.
  EXPECT_TRUE(eventually([&] {
    return cluster_.rejected("malformed") + cluster_.rejected("over_limit") == kMessages;
  })) << cluster_.status();
  EXPECT_GT(cluster_.rejected("malformed"), 0);
  EXPECT_LT(cluster_.log().size() - log_before, 20'000U) << "the log must not grow with the flood";
  expect_unharmed();
}

TEST_F(HostilePeer, SendsFramesThatAreTooManyOrTooLarge) {
  rogue_->send_raw(std::vector<std::string>(50, "x"));
  EXPECT_TRUE(eventually([&] { return cluster_.rejected("too_many_frames") == 1; }))
      << cluster_.status();
  rogue_->send_raw({R"({"type":"telemetry","v":1,"seq":1})", std::string(100'000, 'x')});
  EXPECT_TRUE(eventually([&] { return cluster_.rejected("malformed") == 1; })) << cluster_.status();
  // Beyond what libzmq takes: it cuts the connection before the daemon sees a byte.
  rogue_->send_raw({std::string(10'000'000, 'x')});
  rogue_->send_raw({R"({"type":"heartbeat","v":1,"seq":1})", std::string(64'000, '[')});
  expect_unharmed();
}

TEST_F(HostilePeer, PretendsToBeAnotherNode) {
  rogue_->send(one_step("n2"));
  EXPECT_TRUE(eventually([&] { return cluster_.rejected("node_mismatch") == 1; }))
      << cluster_.status();
  rogue_->send(hello_of("n2"));
  const auto answer = rogue_->receive_a<wire::Reject>();
  ASSERT_TRUE(answer) << cluster_.log();
  EXPECT_NE(answer->reason.find("n1"), std::string::npos) << answer->reason;
  EXPECT_EQ(cluster_.rejected("node_mismatch"), 2);
  EXPECT_FALSE(cluster_.connected("n2"));
  expect_unharmed();
}

TEST_F(HostilePeer, FloodsAndIsCutShortWhileOthersAreServed) {
  WireClient good(cluster_, cluster_.key("n2"));
  good.send(hello_of("n2"));
  ASSERT_TRUE(good.receive_a<wire::Welcome>()) << cluster_.log();
  std::atomic<bool> done = false;
  std::thread flood([&] {
    wire::Telemetry full;
    while (full.records.size() < wire::kMaxTelemetryBytes) {
      const wire::Telemetry one = one_step("n1");
      full.records.insert(full.records.end(), one.records.begin(), one.records.end());
    }
    full.records[0] = std::byte{0x77};  // Whatever it is, reading it costs.
    while (!done) {
      rogue_->send(full);
    }
  });
  const auto over = [&] {
    const json::Value status = cluster_.status();
    for (const json::Value& agent : status["agents"]) {
      if (agent["node"] == "n1") {
        return agent["over_limit"].get<std::int64_t>();
      }
    }
    return std::int64_t{0};
  };
  EXPECT_TRUE(eventually([&] { return over() > 100; })) << cluster_.status();
  for (std::uint64_t i = 0; i < 50; ++i) {
    good.send(wire::Heartbeat{i, 0, 0});
    EXPECT_TRUE(good.receive_a<wire::HeartbeatAck>()) << cluster_.log();
  }
  done = true;
  flood.join();
  EXPECT_TRUE(cluster_.connected("n2"));
  const std::string log = cluster_.log();
  EXPECT_NE(log.find("more than 1000 messages or 16 MB a second"), std::string::npos) << log;
  EXPECT_LT(log.size(), 50'000U);
  expect_unharmed();
}

TEST_F(HostilePeer, NeverReadsAndDelaysNobody) {
  // What the daemon has for it fills the queues and is dropped; the others get theirs.
  for (int i = 0; i < 3000; ++i) {
    rogue_->send(wire::Heartbeat{1, 0, 0});
  }
  WireClient good(cluster_, cluster_.key("n2"));
  good.send(hello_of("n2"));
  ASSERT_TRUE(good.receive_a<wire::Welcome>()) << cluster_.log();
  for (std::uint64_t i = 0; i < 50; ++i) {
    good.send(wire::Heartbeat{i, 0, 0});
    EXPECT_TRUE(good.receive_a<wire::HeartbeatAck>()) << cluster_.log();
  }
  expect_unharmed();
}

TEST_F(HostilePeer, SendsBrokenRecords) {
  wire::Telemetry telemetry = one_step("n1");
  telemetry.records[0] = std::byte{0x77};
  rogue_->send(telemetry);
  telemetry.records.resize(100);
  rogue_->send(telemetry);
  EXPECT_TRUE(eventually([&] { return cluster_.rejected("bad_record") == 2; }))
      << cluster_.status();
  expect_unharmed();
}

TEST_F(HostilePeer, OpensManyConnectionsAndKeepsTheNewestEight) {
  rogue_->watch();
  std::vector<std::unique_ptr<WireClient>> more;
  for (int i = 0; i < 11; ++i) {
    more.push_back(std::make_unique<WireClient>(cluster_, cluster_.key("n1"), -1));
    more.back()->watch();
    more.back()->send(hello_of("n1"));
    ASSERT_TRUE(more.back()->receive_a<wire::Welcome>()) << cluster_.log();
  }
  EXPECT_TRUE(eventually([&] { return rogue_->closed_by_peer(); })) << cluster_.log();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(eventually([&] { return more[i]->closed_by_peer(); })) << i << cluster_.log();
  }
  for (int i = 3; i < 11; ++i) {
    EXPECT_FALSE(more[i]->closed_by_peer()) << i << cluster_.log();
  }
  EXPECT_EQ(cluster_.rejected("too_many_connections"), 4) << cluster_.status();
  EXPECT_NE(cluster_.log().find("more than 8 connections"), std::string::npos) << cluster_.log();
  more.back()->send(wire::Heartbeat{1, 0, 0});
  EXPECT_TRUE(more.back()->receive_a<wire::HeartbeatAck>()) << cluster_.log();
  expect_unharmed();
}

TEST_F(HostilePeer, OpensConnectionsWithoutAWordAndIsLeftWithNone) {
  std::vector<std::unique_ptr<WireClient>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<WireClient>(cluster_, cluster_.key("n1"), -1));
  }
  EXPECT_TRUE(eventually([&] { return cluster_.rejected("handshake_rate") > 0; }))
      << cluster_.status();
  // The key is not locked out.
  WireClient again(cluster_, cluster_.key("n1"));
  again.send(hello_of("n1"));
  EXPECT_TRUE(again.receive_a<wire::Welcome>()) << cluster_.log();
  again.watch();
  const auto open_files = [&] {
    const std::filesystem::directory_iterator files(
        fmt::format("/proc/{}/fd", cluster_.daemon->pid()));
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  EXPECT_TRUE(eventually([&] { return cluster_.rejected("silent_connection") >= 15; }, 120s))
      << cluster_.status() << cluster_.log();
  EXPECT_TRUE(eventually([&] { return open_files() <= before - 15; })) << cluster_.log();
  // The one that spoke is still there.
  again.send(hello_of("n1"));
  EXPECT_TRUE(again.receive_a<wire::Welcome>()) << cluster_.log();
  EXPECT_FALSE(again.closed_by_peer());
  expect_unharmed();
}

TEST_F(HostilePeer, IsAskedForAHelloOnANewConnection) {
  WireClient silent(cluster_, cluster_.key("n2"));
  silent.send(wire::Heartbeat{1, 0, 0});
  const auto answer = silent.receive_a<wire::Reject>();
  ASSERT_TRUE(answer) << cluster_.log();
  EXPECT_GT(answer->retry_after_s, 0);
  EXPECT_FALSE(cluster_.connected("n2"));
  expect_unharmed();
}

}  // namespace
}  // namespace tapas::test
