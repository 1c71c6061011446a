#include "wire/message_codec.h"

#include "base/json/json.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::wire {
namespace {

std::vector<std::byte> bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

std::string text_of(const std::vector<std::byte>& payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

template <typename Decode>
auto decode(Decode decoder, std::string_view header, std::string_view payload) {
  const auto header_bytes = bytes(header);
  const auto payload_bytes = bytes(payload);
  const std::array<std::span<const std::byte>, 2> frames = {header_bytes, payload_bytes};
  return decoder(frames);
}

Result<ToDaemon> to_daemon(std::string_view header, std::string_view payload) {
  return decode(decode_to_daemon, header, payload);
}
Result<ToAgent> to_agent(std::string_view header, std::string_view payload) {
  return decode(decode_to_agent, header, payload);
}

template <typename T>
T round_trip_to_daemon(const T& message) {
  const Frames frames = encode(ToDaemon{message}, 7);
  const auto decoded = to_daemon(frames.header, text_of(frames.payload));
  EXPECT_TRUE(decoded) << decoded.error().message;
  return decoded ? std::get<T>(*decoded) : T{};
}
template <typename T>
T round_trip_to_agent(const T& message) {
  const Frames frames = encode(ToAgent{message}, 7);
  const auto decoded = to_agent(frames.header, text_of(frames.payload));
  EXPECT_TRUE(decoded) << decoded.error().message;
  return decoded ? std::get<T>(*decoded) : T{};
}

std::string header(std::string_view type) {
  return fmt::format(R"({{"type":"{}","v":1,"seq":1}})", type);
}
std::string agent_error(std::string_view type, std::string_view payload) {
  const auto decoded = to_agent(header(type), payload);
  return decoded ? "accepted" : decoded.error().message;
}
std::string daemon_error(std::string_view type, std::string_view payload) {
  const auto decoded = to_daemon(header(type), payload);
  return decoded ? "accepted" : decoded.error().message;
}

constexpr std::string_view kVote =
    R"({"job":"j","epoch":2,"phase":"armed","ok":true,"reason":"","step":3,"bytes":0,"seconds":0})";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  const std::size_t at = result.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return result.replace(at, from.size(), to);
}

TEST(MessageCodec, KeepsHello) {
  Hello hello;
  hello.node = "n017";
  hello.nonce = 0xFEDCBA9876543210;
  hello.term = kMaxCounter;
  hello.attachments = {{"gpt3",
                        0xFFFFFFFFFFFFFFFF,
                        41,
                        42,
                        {{136, "000102030405060708090a0b0c0d0e0f", 4711},
                         {std::numeric_limits<std::uint32_t>::max(), std::string(32, 'f'), 1}}},
                       {"idle", 1, 0, 0, {}}};
  const Hello back = round_trip_to_daemon(hello);
  EXPECT_EQ(back.node, "n017");
  EXPECT_EQ(back.nonce, 0xFEDCBA9876543210);
  EXPECT_EQ(back.term, kMaxCounter);
  ASSERT_EQ(back.attachments.size(), 2U);
  EXPECT_EQ(back.attachments[0].job, "gpt3");
  EXPECT_EQ(back.attachments[0].session, 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(back.attachments[0].epoch, 41U);
  EXPECT_EQ(back.attachments[0].pending_epoch, 42U);
  ASSERT_EQ(back.attachments[0].ranks.size(), 2U);
  EXPECT_EQ(back.attachments[0].ranks[0].rank, 136U);
  EXPECT_EQ(back.attachments[0].ranks[0].device_uuid, "000102030405060708090a0b0c0d0e0f");
  EXPECT_EQ(back.attachments[0].ranks[0].pid, 4711U);
  EXPECT_EQ(back.attachments[0].ranks[1].rank, std::numeric_limits<std::uint32_t>::max());
  EXPECT_TRUE(back.attachments[1].ranks.empty());
}

TEST(MessageCodec, KeepsTheLargestHelloWithinAFrame) {
  Hello hello;
  hello.node = std::string(253, 'n');
  for (std::size_t job = 0; job < kMaxAttachments; ++job) {
    Attachment& attachment = hello.attachments.emplace_back();
    attachment.job = std::string(253, 'j');
    attachment.epoch = attachment.pending_epoch = kMaxCounter;
    attachment.ranks.assign(kMaxRanksPerAttachment,
                            {std::numeric_limits<std::uint32_t>::max(), std::string(32, 'f'),
                             std::numeric_limits<std::uint32_t>::max()});
  }
  EXPECT_LE(encode(ToDaemon{hello}, kMaxCounter).payload.size(), kMaxPayloadBytes);
  EXPECT_EQ(round_trip_to_daemon(hello).attachments.size(), kMaxAttachments);
}

TEST(MessageCodec, KeepsFindingsAndBoundsThem) {
  const Findings two{{{"0000:17:00.0", "pcie_width", "x8 of x16"}, {"mlx5_0/1", "port_down", ""}}};
  EXPECT_EQ(round_trip_to_daemon(two).findings, two.findings);
  const Findings cut = round_trip_to_daemon(Findings{{{"d", "k", std::string(5000, 'x')}}});
  EXPECT_LE(cut.findings.at(0).text.size(), kMaxReasonBytes);

  const std::string longest(kMaxReasonBytes, 'x');
  Findings many;
  many.findings.assign(kMaxFindings, {longest, longest, longest});
  EXPECT_EQ(round_trip_to_daemon(many).findings, many.findings) << "the largest one fits";
  many.findings.resize(kMaxFindings + 1);
  const Frames frames = encode(ToDaemon{many}, 7);
  const auto refused = to_daemon(frames.header, text_of(frames.payload));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("findings"), std::string::npos) << refused.error().message;
}

TEST(MessageCodec, KeepsHeartbeatTelemetryAndVote) {
  const auto heartbeat = round_trip_to_daemon(Heartbeat{1, 2, 3});
  EXPECT_EQ(heartbeat.monotonic_ms, 1U);
  EXPECT_EQ(heartbeat.records_sent, 2U);
  EXPECT_EQ(heartbeat.records_dropped, 3U);

  std::vector<std::byte> records(128, std::byte{0xFF});
  EXPECT_EQ(round_trip_to_daemon(Telemetry{records}).records, records);

  for (const Phase phase :
       {Phase::kPrepared, Phase::kArmed, Phase::kTransferred, Phase::kCommitted, Phase::kAborted}) {
    const auto vote = round_trip_to_daemon(Vote{"j", 5, phase, false, "no \"memory\"", 6, 7, 0.25});
    EXPECT_EQ(vote.job, "j");
    EXPECT_EQ(vote.epoch, 5U);
    EXPECT_EQ(vote.phase, phase);
    EXPECT_FALSE(vote.ok);
    EXPECT_EQ(vote.reason, "no \"memory\"");
    EXPECT_EQ(vote.step, 6U);
    EXPECT_EQ(vote.bytes, 7U);
    EXPECT_EQ(vote.seconds, 0.25);
  }
}

TEST(MessageCodec, KeepsWhatTheDaemonSays) {
  const auto welcome = round_trip_to_agent(Welcome{9, 0.5});
  EXPECT_EQ(welcome.term, 9U);
  EXPECT_EQ(welcome.heartbeat_s, 0.5);
  const auto reject = round_trip_to_agent(Reject{"unknown node", 30.0});
  EXPECT_EQ(reject.reason, "unknown node");
  EXPECT_EQ(reject.retry_after_s, 30.0);
  EXPECT_EQ(round_trip_to_agent(HeartbeatAck{11}).term, 11U);
  for (const SwitchOrder order : {SwitchOrder::kPrepare, SwitchOrder::kArm, SwitchOrder::kTransfer,
                                  SwitchOrder::kCommit, SwitchOrder::kAbort}) {
    const auto command = round_trip_to_agent(SwitchCommand{order, "j", 1, 2, 3, 4, "why"});
    EXPECT_EQ(command.order, order);
    EXPECT_EQ(command.job, "j");
    EXPECT_EQ(command.term, 1U);
    EXPECT_EQ(command.from_epoch, 2U);
    EXPECT_EQ(command.epoch, 3U);
    EXPECT_EQ(command.at_step, 4U);
    EXPECT_EQ(command.reason, "why");
  }
}

TEST(MessageCodec, KeepsAPlanPieceOfAnyBytes) {
  PlanChunk chunk{std::string(253, 'j'), kMaxCounter, kMaxCounter, true, 511, 512, {}};
  chunk.text.assign(kMaxPlanChunkBytes, '\xFF');  // A cut may fall inside a character.
  const PlanChunk back = round_trip_to_agent(chunk);
  EXPECT_EQ(back.job, chunk.job);
  EXPECT_EQ(back.term, kMaxCounter);
  EXPECT_EQ(back.epoch, kMaxCounter);
  EXPECT_TRUE(back.active);
  EXPECT_EQ(back.index, 511U);
  EXPECT_EQ(back.count, 512U);
  EXPECT_EQ(back.text, chunk.text);
}

TEST(MessageCodec, CutsLongReasonsBetweenCharacters) {
  Reject reject;
  reject.reason = "x";
  for (int i = 0; i < 500; ++i) {
    reject.reason += "\xC3\xA9";  // two bytes
  }
  const std::string back = round_trip_to_agent(reject).reason;
  EXPECT_EQ(back.size(), 511U);
  EXPECT_EQ(back, reject.reason.substr(0, 511));
}

TEST(MessageCodec, SurvivesReasonsThatAreNotText) {
  Reject reject;
  reject.reason.assign(4096, '\xFF');
  const std::string back = round_trip_to_agent(reject).reason;
  EXPECT_FALSE(back.empty());
}

TEST(MessageCodec, WritesTheSequenceIntoTheHeader) {
  const auto value = json::parse(encode(ToDaemon{Heartbeat{}}, 42).header);
  ASSERT_TRUE(value);
  EXPECT_EQ((*value)["seq"], 42);
  EXPECT_EQ((*value)["v"], kProtocolVersion);
  EXPECT_EQ((*value)["type"], "heartbeat");
}

TEST(MessageCodec, RefusesWrongNumbersAndSizesOfFrames) {
  const auto good_header = bytes(header("heartbeat_ack"));
  const auto payload = bytes(R"({"term":1})");
  const std::vector<std::span<const std::byte>> none;
  EXPECT_FALSE(decode_to_agent(none));
  const std::vector<std::span<const std::byte>> one = {good_header};
  EXPECT_EQ(decode_to_agent(one).error().message,
            "message of 1 frames; header and payload are expected");
  const std::vector<std::span<const std::byte>> three = {good_header, payload, payload};
  EXPECT_FALSE(decode_to_agent(three));
  EXPECT_EQ(to_agent(std::string(1025, ' '), "{}").error().message,
            "header of 1025 bytes; at most 1024 are allowed");
  EXPECT_EQ(to_agent(header("welcome"), std::string(65'537, ' ')).error().message,
            "payload of 65537 bytes; at most 65536 are allowed");
}

TEST(MessageCodec, NamesWhatIsWrongInTheHeader) {
  const std::string payload = R"({"term":1})";
  const auto error = [&payload](std::string_view text) {
    const auto decoded = to_agent(text, payload);
    return decoded ? "accepted" : decoded.error().message;
  };
  EXPECT_EQ(error(R"({"type":"heartbeat_ack","v":1,"seq":1})"), "accepted");
  EXPECT_NE(error("").find("header"), std::string::npos);
  EXPECT_NE(error("{").find("line 1"), std::string::npos);
  EXPECT_NE(error("[]").find("header"), std::string::npos);
  EXPECT_NE(error(R"({"type":"heartbeat_ack","v":2,"seq":1})").find("protocol version 2"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"heartbeat_ack","v":1})").find("seq"), std::string::npos);
  EXPECT_NE(error(R"({"type":"heartbeat_ack","v":1,"seq":0})").find("seq"), std::string::npos);
  EXPECT_NE(error(R"({"type":"heartbeat_ack","v":1,"seq":1,"sqe":2})").find("sqe"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"heartbeat_ack","type":"welcome","v":1,"seq":1})").find("type"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"hello","v":1,"seq":1})").find("\"hello\" is not what a daemon sends"),
            std::string::npos);
}

TEST(MessageCodec, KeepsTheTwoDirectionsApart) {
  EXPECT_NE(
      daemon_error("welcome", R"({"term":1,"heartbeat_s":1})").find("not what an agent sends"),
      std::string::npos);
  EXPECT_NE(agent_error("telemetry", "").find("not what a daemon sends"), std::string::npos);
}

TEST(MessageCodec, KeepsControlCharactersOfAPeerOutOfErrors) {
  const auto decoded = to_agent(R"({"type":"a\n\u001b[31mb","v":1,"seq":1})", "{}");
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(decoded.error().message.find('\x1b'), std::string::npos);
}

TEST(MessageCodec, NamesTheKeyThatIsWrongInAPayload) {
  EXPECT_EQ(daemon_error("vote", kVote), "accepted");
  const std::vector<std::array<std::string, 3>> cases = {
      {R"("job":"j")", R"("job":"../x")", "vote.job"},
      {R"("job":"j",)", "", "job"},
      {R"("epoch":2)", R"("epoch":-1)", "vote.epoch"},
      {R"("epoch":2)", R"("epoch":9007199254740992)", "vote.epoch"},
      {R"("epoch":2)", R"("epoch":18446744073709551615)", "vote.epoch"},
      {R"("epoch":2)", R"("epoch":2.5)", "vote.epoch"},
      {R"("epoch":2)", R"("epoch":"2")", "vote.epoch"},
      {R"("phase":"armed")", R"("phase":"harmed")", "vote.phase"},
      {R"("ok":true,)", "", "vote.ok"},
      {R"("ok":true)", R"("ok":1)", "vote.ok"},
      {R"("seconds":0)", R"("seconds":-1)", "vote.seconds"},
      {R"("seconds":0)", R"("seconds":1e999)", "line 1"},
      {R"("seconds":0)", R"("seconds":0,"second":0)", "second"},
      {R"("reason":"")", R"("reason":")" + std::string(2000, 'x') + "\"", "vote.reason"},
  };
  for (const auto& [from, to, expected] : cases) {
    const std::string error = daemon_error("vote", replaced(kVote, from, to));
    EXPECT_NE(error.find(expected), std::string::npos) << to << " gave: " << error;
  }
}

TEST(MessageCodec, NamesTheItemThatIsWrongInAHello) {
  const std::string good =
      R"({"node":"n","nonce":"00000000000000ff","term":0,"attachments":[{"job":"j",)"
      R"("session":"0000000000000001","epoch":0,"pending_epoch":0,"ranks":[{"rank":0,)"
      R"("device_uuid":"000102030405060708090a0b0c0d0e0f","pid":1}]}]})";
  EXPECT_EQ(daemon_error("hello", good), "accepted");
  const std::vector<std::array<std::string, 3>> cases = {
      {R"("00000000000000ff")", R"("ff")", "hello.nonce"},
      {R"("00000000000000ff")", R"("00000000000000FF")", "hello.nonce"},
      {R"("00000000000000ff")", "255", "hello.nonce"},
      {R"("node":"n")", R"("node":"-n")", "hello.node"},
      {R"("rank":0)", R"("rank":4294967296)", "hello.attachments[0].ranks[0].rank"},
      {R"(090a0b0c0d0e0f")", R"(09")", "hello.attachments[0].ranks[0].device_uuid"},
      {R"("pid":1)", R"("pid":1,"x":1)", "hello.attachments[0].ranks[0]"},
      {R"("ranks":[)", R"("ranks":["a",)", "hello.attachments[0].ranks[0]"},
      {R"("ranks":[)", R"("ranks":[[],)", "hello.attachments[0].ranks[0]"},
  };
  for (const auto& [from, to, expected] : cases) {
    const std::string error = daemon_error("hello", replaced(good, from, to));
    EXPECT_NE(error.find(expected), std::string::npos) << to << " gave: " << error;
  }
}

TEST(MessageCodec, BoundsListsAndDepth) {
  std::string many = R"({"node":"n","nonce":"00000000000000ff","term":0,"attachments":[)";
  for (int i = 0; i < 9; ++i) {
    many += i == 0 ? "1" : ",1";
  }
  EXPECT_NE(daemon_error("hello", many + "]}").find("attachments"), std::string::npos);
  EXPECT_NE(daemon_error("hello", std::string(30'000, '[')).find("nested"), std::string::npos)
      << daemon_error("hello", std::string(30'000, '['));
}

TEST(MessageCodec, BoundsPlanPieces) {
  const auto error = [](std::string_view index, std::string_view count, std::string_view text) {
    const auto decoded = to_agent(
        fmt::format(R"({{"type":"plan","v":1,"seq":1,"job":"j","term":1,"epoch":1,"active":true,)"
                    R"("index":{},"count":{}}})",
                    index, count),
        text);
    return decoded ? "accepted" : decoded.error().message;
  };
  EXPECT_EQ(error("0", "1", "x"), "accepted");
  EXPECT_NE(error("1", "1", "x").find("header.index"), std::string::npos);
  EXPECT_NE(error("0", "0", "x").find("header.count"), std::string::npos);
  EXPECT_NE(error("0", "513", "x").find("header.count"), std::string::npos);
  EXPECT_EQ(error("0", "1", ""), "plan piece of 0 bytes; 1 to 32768 are allowed");
  EXPECT_EQ(error("0", "1", std::string(32'769, 'x')),
            "plan piece of 32769 bytes; 1 to 32768 are allowed");
}

TEST(MessageCodec, BoundsTheHeartbeatInterval) {
  for (const std::string_view bad : {"0", "-1", "1e9", "null", "\"1\"", "true"}) {
    const std::string error =
        agent_error("welcome", fmt::format(R"({{"term":1,"heartbeat_s":{}}})", bad));
    EXPECT_NE(error.find("welcome.heartbeat_s"), std::string::npos) << bad << ": " << error;
  }
}

}  // namespace
}  // namespace tapas::wire
