#include "wire/message_codec.h"

#include "base/ids.h"
#include "base/json/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

namespace tapas::wire {

namespace {

constexpr double kMaxSeconds = 1e9;
/// A reason is cut to kMaxReasonBytes by its sender, but a byte that was not UTF-8 becomes three.
constexpr std::size_t kMaxReasonBytesRead = 3 * kMaxReasonBytes;
constexpr std::size_t kMaxDepth = 8;

constexpr std::string_view kPhases[] = {"prepared", "armed", "transferred", "committed", "aborted"};
constexpr std::string_view kOrders[] = {"prepare", "arm", "transfer", "commit", "abort"};

json::Value make_header(std::string_view type, std::uint64_t sequence) {
  return {{"type", type}, {"v", kProtocolVersion}, {"seq", sequence}};
}

std::vector<std::byte> to_bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(bytes.data()));
  return bytes;
}

Frames make_frames(std::string_view type, std::uint64_t sequence, const json::Value& payload) {
  return {json::dump(make_header(type, sequence)), to_bytes(json::dump(payload))};
}

std::string_view cut_reason(std::string_view reason) {
  if (reason.size() <= kMaxReasonBytes) {
    return reason;
  }
  std::size_t size = kMaxReasonBytes;
  while (size > 0 && (static_cast<unsigned char>(reason[size]) & 0xC0U) == 0x80U) {
    --size;  // Not inside a character.
  }
  return reason.substr(0, size);
}

std::string to_hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

Frames encode_one(const Hello& hello, std::uint64_t sequence) {
  auto attachments = json::Value::array();
  for (const Attachment& attachment : hello.attachments) {
    auto ranks = json::Value::array();
    for (const RankInfo& rank : attachment.ranks) {
      ranks.push_back({{"rank", rank.rank}, {"device_uuid", rank.device_uuid}, {"pid", rank.pid}});
    }
    attachments.push_back({{"job", attachment.job},
                           {"session", to_hex(attachment.session)},
                           {"epoch", attachment.epoch},
                           {"pending_epoch", attachment.pending_epoch},
                           {"ranks", std::move(ranks)}});
  }
  return make_frames("hello", sequence,
                     {{"node", hello.node},
                      {"nonce", to_hex(hello.nonce)},
                      {"term", hello.term},
                      {"attachments", std::move(attachments)}});
}

Frames encode_one(const Heartbeat& heartbeat, std::uint64_t sequence) {
  return make_frames("heartbeat", sequence,
                     {{"monotonic_ms", heartbeat.monotonic_ms},
                      {"records_sent", heartbeat.records_sent},
                      {"records_dropped", heartbeat.records_dropped}});
}

Frames encode_one(const Findings& message, std::uint64_t sequence) {
  json::Value findings = json::Value::array();
  for (const Finding& finding : message.findings) {
    findings.push_back({{"device", cut_reason(finding.device)},
                        {"kind", cut_reason(finding.kind)},
                        {"text", cut_reason(finding.text)}});
  }
  return make_frames("findings", sequence, {{"findings", std::move(findings)}});
}

Frames encode_one(const Telemetry& telemetry, std::uint64_t sequence) {
  return {json::dump(make_header("telemetry", sequence)), telemetry.records};
}

Frames encode_one(const Vote& vote, std::uint64_t sequence) {
  return make_frames("vote", sequence,
                     {{"job", vote.job},
                      {"epoch", vote.epoch},
                      {"phase", kPhases[static_cast<std::size_t>(vote.phase)]},
                      {"ok", vote.ok},
                      {"reason", cut_reason(vote.reason)},
                      {"step", vote.step},
                      {"bytes", vote.bytes},
                      {"seconds", vote.seconds}});
}

Frames encode_one(const Welcome& welcome, std::uint64_t sequence) {
  return make_frames("welcome", sequence,
                     {{"term", welcome.term},
                      {"heartbeat_s", welcome.heartbeat_s},
                      {"reconnect_spread_s", welcome.reconnect_spread_s}});
}

Frames encode_one(const Reject& reject, std::uint64_t sequence) {
  return make_frames(
      "reject", sequence,
      {{"reason", cut_reason(reject.reason)}, {"retry_after_s", reject.retry_after_s}});
}

Frames encode_one(const HeartbeatAck& ack, std::uint64_t sequence) {
  return make_frames("heartbeat_ack", sequence, {{"term", ack.term}});
}

Frames encode_one(const PlanChunk& chunk, std::uint64_t sequence) {
  auto header = make_header("plan", sequence);
  header["job"] = chunk.job;
  header["term"] = chunk.term;
  header["epoch"] = chunk.epoch;
  header["active"] = chunk.active;
  header["index"] = chunk.index;
  header["count"] = chunk.count;
  return {json::dump(header), to_bytes(chunk.text)};
}

Frames encode_one(const SwitchCommand& command, std::uint64_t sequence) {
  return make_frames("switch", sequence,
                     {{"order", kOrders[static_cast<std::size_t>(command.order)]},
                      {"job", command.job},
                      {"term", command.term},
                      {"from_epoch", command.from_epoch},
                      {"epoch", command.epoch},
                      {"at_step", command.at_step},
                      {"reason", cut_reason(command.reason)}});
}

/// A peer's text goes into our logs: short, and without control characters.
std::string printable(std::string_view text) {
  constexpr std::size_t kShown = 64;
  std::string shown(text.substr(0, kShown));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; }, '?');
  return text.size() > kShown ? shown + "..." : shown;
}

/// ObjectReader plus the types that only messages have.
class MessageReader : public json::ObjectReader {
 public:
  using ObjectReader::ObjectReader;

  std::uint64_t counter(std::string_view key) {
    return static_cast<std::uint64_t>(integer(key, 0, static_cast<std::int64_t>(kMaxCounter)));
  }

  std::string name(std::string_view key) {
    std::string text = string(key);
    if (ok() && !valid_name(text)) {
      refuse(key, fmt::format("\"{}\" is not a name of a node or job", printable(text)));
    }
    return text;
  }

  std::string text(std::string_view key) {
    std::string text = string(key);
    if (text.size() > kMaxReasonBytesRead) {
      refuse(key, fmt::format("{} bytes; at most {}", text.size(), kMaxReasonBytesRead));
    }
    return text;
  }
  std::string reason() { return text("reason"); }

  std::uint64_t hex64(std::string_view key) {
    const std::string text = string(key);
    std::uint64_t value = 0;
    if (ok() && !is_hex(text, 16)) {
      refuse(key, fmt::format("\"{}\" is not 16 lower-case hexadecimal digits", printable(text)));
      return 0;
    }
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return value;
  }

  std::string device_uuid(std::string_view key) {
    std::string text = string(key);
    if (ok() && !is_hex(text, 32)) {
      refuse(key, fmt::format("\"{}\" is not 32 lower-case hexadecimal digits", printable(text)));
    }
    return text;
  }

  /// Position of the word at `key` in `words`.
  template <std::size_t kCount>
  std::size_t index_of(std::string_view key, const std::string_view (&words)[kCount]) {
    const std::string text = string(key);
    const auto* const found = std::find(std::begin(words), std::end(words), text);
    if (found == std::end(words)) {
      if (ok()) {
        refuse(key, fmt::format("\"{}\" is none of {}", printable(text), fmt::join(words, ", ")));
      }
      return 0;
    }
    return static_cast<std::size_t>(found - std::begin(words));
  }

  bool boolean(std::string_view key) {
    if (!has(key)) {
      refuse(key, "is missing");
    }
    return boolean_or(key, false);
  }

 private:
  void refuse(std::string_view key, const std::string& what) {
    absorb({ErrorCode::kInvalid, fmt::format("{}: {}", child(key), what)});
  }

  static bool is_hex(std::string_view text, std::size_t size) {
    return text.size() == size && std::all_of(text.begin(), text.end(), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
  }
};

struct Envelope {
  json::Value header;
  std::string type;
  std::span<const std::byte> payload;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

json::ParseLimits limits(std::size_t max_bytes) {
  return {.max_bytes = max_bytes, .max_depth = kMaxDepth, .comments = false};
}

/// Header fields that every type has; plans add more and finish the header themselves.
void read_common(MessageReader& header) {
  const std::int64_t version = header.integer("v", 0, 1'000'000);
  if (header.ok() && version != kProtocolVersion) {
    header.absorb({ErrorCode::kInvalid,
                   fmt::format("header.v: protocol version {}; this program speaks {}, install the "
                               "same release on daemon and agents",
                               version, kProtocolVersion)});
  }
  static_cast<void>(header.string("type"));
  static_cast<void>(header.integer("seq", 1, static_cast<std::int64_t>(kMaxCounter)));
}

Result<Envelope> open_frames(std::span<const std::span<const std::byte>> frames) {
  if (frames.size() != 2) {
    return fail(ErrorCode::kInvalid, "message of {} frames; header and payload are expected",
                frames.size());
  }
  if (frames[0].size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalid, "header of {} bytes; at most {} are allowed", frames[0].size(),
                kMaxHeaderBytes);
  }
  if (frames[1].size() > kMaxPayloadBytes) {
    return fail(ErrorCode::kInvalid, "payload of {} bytes; at most {} are allowed",
                frames[1].size(), kMaxPayloadBytes);
  }
  auto header = json::parse(as_text(frames[0]), limits(kMaxHeaderBytes));
  if (!header) {
    return fail_in("header", header.error());
  }
  MessageReader in(*header, "header");
  read_common(in);
  if (!in.ok()) {
    return tl::unexpected(in.finish().error());
  }
  std::string type = in.string("type");
  return Envelope{*std::move(header), std::move(type), frames[1]};
}

/// `read` fills the message from the payload's reader.
template <typename Message, typename Read>
Result<Message> read_json(const Envelope& envelope, Read read) {
  MessageReader header(envelope.header, "header");
  read_common(header);
  if (auto ok = header.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  auto payload = json::parse(as_text(envelope.payload), limits(kMaxPayloadBytes));
  if (!payload) {
    return fail_in(envelope.type, payload.error());
  }
  MessageReader in(*payload, envelope.type);
  Message message;
  read(in, message);
  if (auto ok = in.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  return message;
}

void read_ranks(MessageReader& in, Attachment& attachment) {
  const json::Value& ranks = in.array("ranks", kMaxRanksPerAttachment);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    MessageReader item(ranks[i], in.child("ranks", i));
    RankInfo& rank = attachment.ranks.emplace_back();
    rank.rank = static_cast<std::uint32_t>(item.integer("rank", 0, UINT32_MAX));
    rank.device_uuid = item.device_uuid("device_uuid");
    rank.pid = static_cast<std::uint32_t>(item.integer("pid", 0, UINT32_MAX));
    if (auto ok = item.finish(); !ok) {
      in.absorb(ok.error());
      return;
    }
  }
}

void read_hello(MessageReader& in, Hello& hello) {
  hello.node = in.name("node");
  hello.nonce = in.hex64("nonce");
  hello.term = in.counter("term");
  const json::Value& attachments = in.array("attachments", kMaxAttachments);
  for (std::size_t i = 0; i < attachments.size(); ++i) {
    MessageReader item(attachments[i], in.child("attachments", i));
    Attachment& attachment = hello.attachments.emplace_back();
    attachment.job = item.name("job");
    attachment.session = item.hex64("session");
    attachment.epoch = item.counter("epoch");
    attachment.pending_epoch = item.counter("pending_epoch");
    read_ranks(item, attachment);
    if (auto ok = item.finish(); !ok) {
      in.absorb(ok.error());
      return;
    }
  }
}

void read_heartbeat(MessageReader& in, Heartbeat& heartbeat) {
  heartbeat.monotonic_ms = in.counter("monotonic_ms");
  heartbeat.records_sent = in.counter("records_sent");
  heartbeat.records_dropped = in.counter("records_dropped");
}

void read_vote(MessageReader& in, Vote& vote) {
  vote.job = in.name("job");
  vote.epoch = in.counter("epoch");
  vote.phase = static_cast<Phase>(in.index_of("phase", kPhases));
  vote.ok = in.boolean("ok");
  vote.reason = in.reason();
  vote.step = in.counter("step");
  vote.bytes = in.counter("bytes");
  vote.seconds = in.number("seconds", 0.0, kMaxSeconds);
}

void read_findings(MessageReader& in, Findings& message) {
  const json::Value& findings = in.array("findings", kMaxFindings);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    MessageReader item(findings[i], in.child("findings", i));
    Finding& finding = message.findings.emplace_back();
    finding.device = item.text("device");
    finding.kind = item.text("kind");
    finding.text = item.text("text");
    if (auto ok = item.finish(); !ok) {
      in.absorb(ok.error());
      return;
    }
  }
}

void read_switch(MessageReader& in, SwitchCommand& command) {
  command.order = static_cast<SwitchOrder>(in.index_of("order", kOrders));
  command.job = in.name("job");
  command.term = in.counter("term");
  command.from_epoch = in.counter("from_epoch");
  command.epoch = in.counter("epoch");
  command.at_step = in.counter("at_step");
  command.reason = in.reason();
}

Result<Telemetry> read_telemetry(const Envelope& envelope) {
  MessageReader header(envelope.header, "header");
  read_common(header);
  if (auto ok = header.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  return Telemetry{{envelope.payload.begin(), envelope.payload.end()}};
}

Result<PlanChunk> read_plan(const Envelope& envelope) {
  MessageReader header(envelope.header, "header");
  read_common(header);
  PlanChunk chunk;
  chunk.job = header.name("job");
  chunk.term = header.counter("term");
  chunk.epoch = header.counter("epoch");
  chunk.active = header.boolean("active");
  chunk.count = static_cast<std::uint32_t>(header.integer("count", 1, kMaxPlanChunks));
  chunk.index = static_cast<std::uint32_t>(
      header.integer("index", 0, std::max<std::int64_t>(chunk.count, 1) - 1));
  if (auto ok = header.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  if (envelope.payload.empty() || envelope.payload.size() > kMaxPlanChunkBytes) {
    return fail(ErrorCode::kInvalid, "plan piece of {} bytes; 1 to {} are allowed",
                envelope.payload.size(), kMaxPlanChunkBytes);
  }
  chunk.text = as_text(envelope.payload);
  return chunk;
}

}  // namespace

Frames encode(const ToDaemon& message, std::uint64_t sequence) {
  return std::visit([sequence](const auto& typed) { return encode_one(typed, sequence); }, message);
}

Frames encode(const ToAgent& message, std::uint64_t sequence) {
  return std::visit([sequence](const auto& typed) { return encode_one(typed, sequence); }, message);
}

Result<ToDaemon> decode_to_daemon(std::span<const std::span<const std::byte>> frames) {
  const auto envelope = open_frames(frames);
  if (!envelope) {
    return tl::unexpected(envelope.error());
  }
  if (envelope->type == "hello") {
    return read_json<Hello>(*envelope, read_hello);
  }
  if (envelope->type == "heartbeat") {
    return read_json<Heartbeat>(*envelope, read_heartbeat);
  }
  if (envelope->type == "telemetry") {
    return read_telemetry(*envelope);
  }
  if (envelope->type == "vote") {
    return read_json<Vote>(*envelope, read_vote);
  }
  if (envelope->type == "findings") {
    return read_json<Findings>(*envelope, read_findings);
  }
  return fail(
      ErrorCode::kInvalid,
      "header.type: \"{}\" is not what an agent sends: hello, heartbeat, telemetry, vote or "
      "findings",
      printable(envelope->type));
}

Result<ToAgent> decode_to_agent(std::span<const std::span<const std::byte>> frames) {
  const auto envelope = open_frames(frames);
  if (!envelope) {
    return tl::unexpected(envelope.error());
  }
  if (envelope->type == "welcome") {
    return read_json<Welcome>(*envelope, [](MessageReader& in, Welcome& welcome) {
      welcome.term = in.counter("term");
      welcome.heartbeat_s = in.number("heartbeat_s", 0.01, 3600.0);
      welcome.reconnect_spread_s = in.number("reconnect_spread_s", 0.0, 600.0);
    });
  }
  if (envelope->type == "reject") {
    return read_json<Reject>(*envelope, [](MessageReader& in, Reject& reject) {
      reject.reason = in.reason();
      reject.retry_after_s = in.number("retry_after_s", 0.0, kMaxSeconds);
    });
  }
  if (envelope->type == "heartbeat_ack") {
    return read_json<HeartbeatAck>(
        *envelope, [](MessageReader& in, HeartbeatAck& ack) { ack.term = in.counter("term"); });
  }
  if (envelope->type == "plan") {
    return read_plan(*envelope);
  }
  if (envelope->type == "switch") {
    return read_json<SwitchCommand>(*envelope, read_switch);
  }
  return fail(
      ErrorCode::kInvalid,
      "header.type: \"{}\" is not what a daemon sends: welcome, reject, heartbeat_ack, plan "
      "or switch",
      printable(envelope->type));
}

}  // namespace tapas::wire
