#pragma once

#include "base/result.h"
#include "wire/message.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tapas::wire {

inline constexpr std::size_t kMaxHeaderBytes = 1U << 10U;
inline constexpr std::size_t kMaxPayloadBytes = 64U << 10U;
inline constexpr std::size_t kMaxFrames = 4;

/// A message as it travels: the JSON header and the payload, without the ROUTER's routing frame.
struct Frames {
  std::string header;
  std::vector<std::byte> payload;
};

/// `sequence` counts the sender's messages from 1 and goes into the header.
[[nodiscard]] Frames encode(const ToDaemon& message, std::uint64_t sequence);
[[nodiscard]] Frames encode(const ToAgent& message, std::uint64_t sequence);

/// Decoders of what a peer sent: bounded, strict (unknown keys, wrong types, wrong version and
/// out-of-range values are refused by name), never throw. Telemetry payloads are passed on
/// undecoded, see decode_records().
[[nodiscard]] Result<ToDaemon> decode_to_daemon(std::span<const std::span<const std::byte>> frames);
[[nodiscard]] Result<ToAgent> decode_to_agent(std::span<const std::span<const std::byte>> frames);

}  // namespace tapas::wire
