#pragma once

#include "base/result.h"
#include "daemon/core/event.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tapas::daemon {

/// Why a message was refused: a fixed word for counting, and a sentence.
struct Refusal {
  std::string_view reason;
  std::string sentence;
  bool turn_away = false;  ///< tell the peer as well: it cannot work like this
};

struct InboundCounts {
  std::uint64_t step_records = 0;
  std::uint64_t link_records = 0;
  std::uint64_t health_records = 0;
};

/// A decoded message: an event for the core, unless it held nothing that the core wants.
struct Inbound {
  std::optional<Event> event;
  bool is_hello = false;
  InboundCounts counts;
};

/// Decodes what the peer with `node`'s key sent. Refuses whatever claims to come from another node,
/// in a HELLO or in any record. Never throws.
[[nodiscard]] tl::expected<Inbound, Refusal> read_message(
    const std::string& node, std::span<const std::span<const std::byte>> frames);

}  // namespace tapas::daemon
