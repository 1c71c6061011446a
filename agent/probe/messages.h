#pragma once

#include "agent/probe/load.h"
#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The lines, each one JSON object, that both ends say around the loads. What is parsed comes from
/// somebody who is not trusted: kInvalid says what was seen.
namespace tapas::agent::probe {

/// From the end that asks.
struct Hello {
  std::string token;
  std::optional<double> nominal_bytes_per_s;  ///< Of its own interface.
  Limits limits;
};

/// At the sending end of a load.
struct Sent {
  std::uint64_t segments = 0;
  std::uint64_t retransmits = 0;  ///< Of them.
  double busy_ratio = 0;  ///< Of the time in which the process ran or waited to run; 0 to 1.
};

/// At the receiving end.
struct Received {
  std::uint64_t bytes = 0;
  double seconds = 0;
  double measured_s = 0;
  double bytes_per_s = 0;  ///< As Meter has it.
  double busy_ratio = 0;
};

[[nodiscard]] std::string to_line(const Hello& hello);
[[nodiscard]] std::string to_line(const Load& load);
[[nodiscard]] std::string to_line(const Sent& sent);
[[nodiscard]] std::string to_line(const Received& received);
/// The answer to a hello that gets no load.
[[nodiscard]] std::string refusal(std::string_view why);

[[nodiscard]] Result<Hello> parse_hello(std::string_view line);
/// kDenied with the other end's reason where it refused.
[[nodiscard]] Result<Load> parse_load(std::string_view line);
[[nodiscard]] Result<Sent> parse_sent(std::string_view line);
[[nodiscard]] Result<Received> parse_received(std::string_view line);

}  // namespace tapas::agent::probe
