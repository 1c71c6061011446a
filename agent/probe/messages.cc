#include "agent/probe/messages.h"

#include "base/clean.h"
#include "base/json/json.h"

#include <initializer_list>
#include <utility>

namespace tapas::agent::probe {

namespace {

constexpr std::string_view kSchema = "tapas.probe.wire/1";
constexpr double kMinBytesPerS = 1;
constexpr double kMaxSpanS = 3600;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 50U;

struct Field {
  std::string_view key;
  std::optional<double> value;
};

json::Value object_of(std::string_view kind, std::initializer_list<Field> fields) {
  json::Value out = {{"schema", kSchema}, {"kind", kind}};
  for (const Field& field : fields) {
    if (field.value) {
      out[std::string(field.key)] = *field.value;
    }
  }
  return out;
}

std::optional<double> optional_number(json::ObjectReader& in, std::string_view key, double min,
                                      double max) {
  return in.has(key) ? std::optional(in.number(key, min, max)) : std::nullopt;
}

std::uint64_t count(json::ObjectReader& in, std::string_view key, std::int64_t max = kMaxCount) {
  return static_cast<std::uint64_t>(in.integer(key, 0, max));
}

/// `read` gets a reader of the object and may return any value.
template <typename Read>
auto parse_line(std::string_view line, std::string_view kind, Read read)
    -> Result<decltype(read(std::declval<json::ObjectReader&>()))> {
  json::ParseLimits limits;
  limits.max_depth = 2;
  const auto value = json::parse(line, limits);
  if (!value || !value->is_object()) {
    return fail(ErrorCode::kInvalid, "\"{}\" is not what tapas-agent probe says", clean(line));
  }
  json::ObjectReader in(*value, "probe");
  in.require_schema(kSchema);
  const std::string seen = in.word("kind", {kind, "refusal"});
  if (in.ok() && seen == "refusal") {
    const std::string why = in.string("why");
    if (auto ok = in.finish(); !ok) {
      return fail(ErrorCode::kInvalid, "{}", clean(ok.error().message));
    }
    return fail(ErrorCode::kDenied, "refused: {}", clean(why));
  }
  auto result = read(in);
  if (auto ok = in.finish(); !ok) {
    return fail(ErrorCode::kInvalid, "{}", clean(ok.error().message));
  }
  return result;
}

}  // namespace

std::string to_line(const Hello& hello) {
  json::Value out = object_of("hello", {{"nominal_bytes_per_s", hello.nominal_bytes_per_s},
                                        {"share", hello.limits.share},
                                        {"bytes_per_s", hello.limits.bytes_per_s},
                                        {"seconds", hello.limits.seconds}});
  out["bytes"] = hello.limits.bytes;
  out["token"] = hello.token;
  return json::dump(out);
}

std::string to_line(const Load& load) {
  json::Value out = object_of("load", {{"nominal_bytes_per_s", load.nominal_bytes_per_s},
                                       {"bytes_per_s", load.bytes_per_s},
                                       {"seconds", load.seconds}});
  out["bytes"] = load.bytes;
  return json::dump(out);
}

std::string to_line(const Sent& sent) {
  json::Value out = object_of("sent", {{"busy_ratio", sent.busy_ratio}});
  out["segments"] = sent.segments;
  out["retransmits"] = sent.retransmits;
  return json::dump(out);
}

std::string to_line(const Received& received) {
  json::Value out = object_of("received", {{"seconds", received.seconds},
                                           {"measured_s", received.measured_s},
                                           {"bytes_per_s", received.bytes_per_s},
                                           {"busy_ratio", received.busy_ratio}});
  out["bytes"] = received.bytes;
  return json::dump(out);
}

std::string refusal(std::string_view why) {
  return json::dump({{"schema", kSchema}, {"kind", "refusal"}, {"why", why}});
}

Result<Hello> parse_hello(std::string_view line) {
  return parse_line(line, "hello", [](json::ObjectReader& in) {
    Hello hello;
    hello.token = in.string("token");
    hello.nominal_bytes_per_s =
        optional_number(in, "nominal_bytes_per_s", kMinBytesPerS, kMaxBytesPerS);
    hello.limits.share = optional_number(in, "share", 0, 1);
    hello.limits.bytes_per_s = optional_number(in, "bytes_per_s", kMinBytesPerS, kMaxBytesPerS);
    hello.limits.seconds = in.number("seconds", 0, kMaxSeconds);
    hello.limits.bytes = count(in, "bytes", kMaxBytes);
    return hello;
  });
}

Result<Load> parse_load(std::string_view line) {
  return parse_line(line, "load", [](json::ObjectReader& in) {
    Load load;
    load.nominal_bytes_per_s =
        optional_number(in, "nominal_bytes_per_s", kMinBytesPerS, kMaxBytesPerS);
    load.bytes_per_s = optional_number(in, "bytes_per_s", kMinBytesPerS, kMaxBytesPerS);
    load.seconds = in.number("seconds", 0, kMaxSeconds);
    load.bytes = count(in, "bytes", kMaxBytes);
    return load;
  });
}

Result<Sent> parse_sent(std::string_view line) {
  return parse_line(line, "sent", [](json::ObjectReader& in) {
    Sent sent;
    sent.segments = count(in, "segments");
    sent.retransmits = count(in, "retransmits");
    sent.busy_ratio = in.number("busy_ratio", 0, 1);
    return sent;
  });
}

Result<Received> parse_received(std::string_view line) {
  return parse_line(line, "received", [](json::ObjectReader& in) {
    Received received;
    received.bytes = count(in, "bytes");
    received.seconds = in.number("seconds", 0, kMaxSpanS);
    received.measured_s = in.number("measured_s", 0, kMaxSpanS);
    received.bytes_per_s = in.number("bytes_per_s", 0, kMaxBytesPerS);
    received.busy_ratio = in.number("busy_ratio", 0, 1);
    return received;
  });
}

}  // namespace tapas::agent::probe
