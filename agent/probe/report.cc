#include "agent/probe/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tapas::agent::probe {

namespace {

/// Of what was tried. Headers are no payload: 4 to 6 % of an Ethernet frame of 1,500 bytes.
constexpr double kReachedRatio = 0.9;
/// Of the time in which an end ran or waited for a processor: from here on that, and not the link,
/// may be what limited.
constexpr double kBusyRatio = 0.5;
constexpr double kLeastMeasuredS = 0.02;

std::optional<double> ratio(double value, std::optional<double> of) {
  return of ? std::optional(value / *of) : std::nullopt;
}

json::Value or_null(std::optional<double> value) {
  return value ? json::Value(*value) : json::Value(nullptr);
}

double busiest(const Transfer& transfer) {
  return std::max(transfer.sent.busy_ratio, transfer.received.busy_ratio);
}

std::string sentence(const Load& load, const Transfer& transfer) {
  const std::string seen = rate_text(transfer.received.bytes_per_s);
  const auto tried = tried_bytes_per_s(load);
  const std::string part =
      tried ? fmt::format("{} of the {} tried", seen, rate_text(*tried)) : seen;
  const std::string again = fmt::format("{} of {} segments sent again", transfer.sent.retransmits,
                                        transfer.sent.segments);
  const auto nominal = ratio(transfer.received.bytes_per_s, load.nominal_bytes_per_s);
  switch (judge(load, transfer)) {
    case Verdict::kHealthy:
      return fmt::format("healthy: {}; {}", part, again);
    case Verdict::kSlow:
      return fmt::format("slow: {}{}; {}", part,
                         nominal ? fmt::format(", {:.2g} of nominal", *nominal) : "", again);
    case Verdict::kUnclear:
      if (transfer.received.measured_s < kLeastMeasuredS) {
        return fmt::format("unclear: {}, but only {:.0f} ms count: give more --bytes or --seconds",
                           part, transfer.received.measured_s * 1000);
      }
      return fmt::format(
          "unclear: {}, but the {} end ran or waited for a processor {:.0f} % of the time: try "
          "less "
          "(--rate), or when that node has less to do; {}",
          part, transfer.sent.busy_ratio > transfer.received.busy_ratio ? "sending" : "receiving",
          busiest(transfer) * 100, again);
    case Verdict::kMeasured:
      return fmt::format("measured: {}, no nominal speed to compare with; {}", part, again);
  }
  return "";
}

json::Value direction_json(std::string_view name, const Load& load, const Transfer& transfer) {
  const double speed = transfer.received.bytes_per_s;
  return {{"direction", name},
          {"verdict", to_string(judge(load, transfer))},
          {"bytes_per_s", speed},
          {"tried_ratio", or_null(ratio(speed, tried_bytes_per_s(load)))},
          {"nominal_ratio", or_null(ratio(speed, load.nominal_bytes_per_s))},
          {"bytes", transfer.received.bytes},
          {"seconds", transfer.received.seconds},
          {"measured_s", transfer.received.measured_s},
          {"segments", transfer.sent.segments},
          {"retransmits", transfer.sent.retransmits},
          {"sender_busy_ratio", transfer.sent.busy_ratio},
          {"receiver_busy_ratio", transfer.received.busy_ratio},
          {"sentence", sentence(load, transfer)}};
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHealthy:
      return "healthy";
    case Verdict::kSlow:
      return "slow";
    case Verdict::kUnclear:
      return "unclear";
    case Verdict::kMeasured:
      return "measured";
  }
  return "";
}

std::optional<double> tried_bytes_per_s(const Load& load) {
  return lesser(load.bytes_per_s, load.nominal_bytes_per_s);
}

Verdict judge(const Load& load, const Transfer& transfer) {
  const auto tried = tried_bytes_per_s(load);
  if (transfer.received.measured_s < kLeastMeasuredS) {
    return Verdict::kUnclear;
  }
  if (!tried) {
    return Verdict::kMeasured;
  }
  if (transfer.received.bytes_per_s >= kReachedRatio * *tried) {
    return Verdict::kHealthy;
  }
  return busiest(transfer) >= kBusyRatio ? Verdict::kUnclear : Verdict::kSlow;
}

bool well(const Report& report) {
  const auto good = [&](const Transfer& transfer) {
    const Verdict verdict = judge(report.load, transfer);
    return verdict == Verdict::kHealthy || verdict == Verdict::kMeasured;
  };
  return good(report.to) && good(report.from);
}

std::string rate_text(double bytes_per_s) {
  const double bits = bytes_per_s * 8;
  if (bits >= 1e9) {
    return fmt::format("{:.2f} Gbit/s", bits / 1e9);
  }
  return bits >= 1e6 ? fmt::format("{:.1f} Mbit/s", bits / 1e6)
                     : fmt::format("{:.1f} kbit/s", bits / 1e3);
}

std::string to_text(const Report& report) {
  const Load& load = report.load;
  const std::string over = report.interface.empty() ? "" : " over " + report.interface;
  const std::string nominal =
      load.nominal_bytes_per_s ? rate_text(*load.nominal_bytes_per_s) : "unknown";
  std::string tried = "as fast as it goes";
  if (load.bytes_per_s) {
    const auto share = ratio(*load.bytes_per_s, load.nominal_bytes_per_s);
    tried = rate_text(*load.bytes_per_s) + (share ? fmt::format(", {:.2g} of it", *share) : "");
  }
  return fmt::format(
      "{}{}: nominal {}, tried {}; {:.1f} s and {} bytes at most each way; round trip {:.0f} "
      "us\n"
      "to    {}\n"
      "from  {}\n",
      to_string(report.peer), over, nominal, tried, load.seconds, load.bytes, report.rtt_s * 1e6,
      sentence(load, report.to), sentence(load, report.from));
}

json::Value to_json(const Report& report) {
  const Load& load = report.load;
  return {{"schema", "tapas.probe/1"},
          {"peer", to_string(report.peer)},
          {"interface",
           report.interface.empty() ? json::Value(nullptr) : json::Value(report.interface)},
          {"nominal_bytes_per_s", or_null(load.nominal_bytes_per_s)},
          {"tried_bytes_per_s", or_null(tried_bytes_per_s(load))},
          {"paced", load.bytes_per_s.has_value()},
          {"max_seconds", load.seconds},
          {"max_bytes", load.bytes},
          {"rtt_s", report.rtt_s},
          {"directions", json::Value::array({direction_json("to", load, report.to),
                                             direction_json("from", load, report.from)})}};
}

}  // namespace tapas::agent::probe
