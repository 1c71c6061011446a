#include "daemon/net/inbound.h"

#include "base/ids.h"
#include "wire/message_codec.h"
#include "wire/record_codec.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

using Bytes = std::vector<std::byte>;

tl::expected<Inbound, Refusal> read(const std::string& node, const wire::ToDaemon& message) {
  const wire::Frames frames = wire::encode(message, 1);
  const std::vector<std::span<const std::byte>> spans = {
      std::as_bytes(std::span(frames.header)), std::span<const std::byte>(frames.payload)};
  return read_message(node, spans);
}

wire::Telemetry telemetry(const std::vector<wire::Record>& records) {
  wire::Telemetry out;
  for (const wire::Record& record : records) {
    wire::append_record(record, out.records);
  }
  return out;
}

wire::StepRecord step_of(const std::string& node) {
  wire::StepRecord record;
  record.job = name_hash("job");
  record.session = 5;
  record.node = name_hash(node);
  record.epoch = 3;
  record.step = 7;
  record.end_time_ns = 2'500'000'000;
  record.rank = 9;
  record.microbatches = 4;
  record.wall_us = 1'500'000;
  record.forward_us = 250'000;
  record.dp_collective_us = 10;
  record.work_tokens = 8192;
  record.input_wait_us = 125'000;
  return record;
}

TEST(InboundMessage, TurnsStepRecordsIntoSeconds) {
  const auto inbound = read("n1", telemetry({step_of("n1")}));
  ASSERT_TRUE(inbound) << inbound.error().sentence;
  EXPECT_EQ(inbound->counts.step_records, 1U);
  const auto& batch = std::get<StepBatch>(inbound->event.value());
  EXPECT_EQ(batch.node, "n1");
  const StepSample& sample = batch.samples.at(0);
  EXPECT_EQ(sample.rank, RankId(9));
  EXPECT_EQ(sample.epoch, Epoch(3));
  EXPECT_EQ(sample.step, 7U);
  EXPECT_DOUBLE_EQ(sample.end_time_s, 2.5);
  EXPECT_DOUBLE_EQ(sample.wall_s, 1.5);
  EXPECT_DOUBLE_EQ(sample.forward_s, 0.25);
  EXPECT_DOUBLE_EQ(sample.dp_collective_s, 1e-5);
  EXPECT_DOUBLE_EQ(sample.input_wait_s, 0.125);
  EXPECT_EQ(sample.work_tokens, 8192U);
}

TEST(InboundMessage, CarriesLinkRecordsInSeconds) {
  wire::LinkRecord link;
  link.job = 5;
  link.session = 6;
  link.source_node = name_hash("n1");
  link.destination_node = name_hash("n2");
  link.end_time_ns = 1'500'000'000;
  link.bytes = 4000;
  link.transfer_us = 250;
  link.rank = 3;
  link.peer_rank = 9;
  const auto inbound = read("n1", telemetry({link}));
  ASSERT_TRUE(inbound) << inbound.error().sentence;
  EXPECT_EQ(inbound->counts.link_records, 1U);
  const auto& batch = std::get<StepBatch>(inbound->event.value());
  EXPECT_TRUE(batch.samples.empty());
  ASSERT_EQ(batch.links.size(), 1U);
  const LinkSample& sample = batch.links.front();
  EXPECT_EQ(sample.job, 5U);
  EXPECT_EQ(sample.session, 6U);
  EXPECT_EQ(sample.destination, name_hash("n2"));
  EXPECT_EQ(sample.rank, RankId(3));
  EXPECT_EQ(sample.peer, RankId(9));
  EXPECT_DOUBLE_EQ(sample.end_time_s, 1.5);
  EXPECT_DOUBLE_EQ(sample.bytes, 4000);
  EXPECT_DOUBLE_EQ(sample.transfer_s, 250e-6);
}

TEST(InboundMessage, CountsHealthRecordsWithoutAnEvent) {
  wire::HealthRecord health;
  health.node = name_hash("n1");
  const auto inbound = read("n1", telemetry({health, health}));
  ASSERT_TRUE(inbound) << inbound.error().sentence;
  EXPECT_FALSE(inbound->event);
  EXPECT_EQ(inbound->counts.health_records, 2U);
}

TEST(InboundMessage, IsRefusedWhenItClaimsAnotherNode) {
  wire::Hello hello;
  hello.node = "n2";
  const auto greeting = read("n1", hello);
  ASSERT_FALSE(greeting);
  EXPECT_EQ(greeting.error().reason, "node_mismatch");
  EXPECT_TRUE(greeting.error().turn_away);
  wire::LinkRecord link;
  link.source_node = name_hash("n2");
  for (const wire::Record& record : {wire::Record(step_of("n2")), wire::Record(link)}) {
    const auto records = read("n1", telemetry({step_of("n1"), record}));
    ASSERT_FALSE(records);
    EXPECT_EQ(records.error().reason, "node_mismatch");
    EXPECT_FALSE(records.error().turn_away);
  }
}

TEST(InboundMessage, IsCalledByTheNodeOfTheKey) {
  wire::Hello hello;
  hello.node = "n1";
  hello.nonce = 77;
  hello.term = 4;
  hello.attachments.push_back({"job", 5, 6, 7, {{8, std::string(32, '0'), 9}}});
  const auto inbound = read("n1", hello);
  ASSERT_TRUE(inbound) << inbound.error().sentence;
  EXPECT_TRUE(inbound->is_hello);
  const auto& event = std::get<AgentHello>(inbound->event.value());
  EXPECT_EQ(event.node, "n1");
  EXPECT_EQ(event.term, Term(4));
  ASSERT_EQ(event.jobs.size(), 1U);
  EXPECT_EQ(event.jobs[0].pending_epoch, Epoch(7));
  EXPECT_EQ(event.jobs[0].ranks.at(0).rank, RankId(8));
  const auto vote = read("n1", wire::Vote{"job", 7, wire::Phase::kArmed, false, "no", 1, 2, 3.5});
  const auto& heard = std::get<AgentVote>(vote.value().event.value());
  EXPECT_EQ(heard.phase, SwitchPhase::kArmed);
  EXPECT_FALSE(heard.ok);
  EXPECT_DOUBLE_EQ(heard.seconds, 3.5);
}

TEST(InboundMessage, SurvivesNoiseWithAReason) {
  std::mt19937 random(1);
  const wire::Frames good = wire::encode(wire::ToDaemon(telemetry({step_of("n1")})), 1);
  std::size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Bytes> frames;
    if (round % 2 == 0) {
      for (std::size_t count = random() % 7; count > 0; --count) {
        Bytes& frame = frames.emplace_back(random() % 300);
        for (std::byte& byte : frame) {
          byte = static_cast<std::byte>(random());
        }
      }
    } else {
      const auto header = std::as_bytes(std::span(good.header));
      frames = {{header.begin(), header.end()}, good.payload};
      Bytes& frame = frames[random() % 2];
      frame[random() % frame.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    const std::vector<std::span<const std::byte>> spans(frames.begin(), frames.end());
    const auto inbound = read_message("n1", spans);
    if (!inbound) {
      ++refused;
      EXPECT_FALSE(inbound.error().reason.empty());
      EXPECT_FALSE(inbound.error().sentence.empty());
    }
  }
  EXPECT_GE(refused, 1500U);
}

}  // namespace
}  // namespace tapas::daemon
