#pragma once

#include "target.h"
#include "wire/message_codec.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

/// A message as one fuzz input: two bytes with the header's length, the header, the payload.
namespace tapas::fuzz {

inline std::string join(const wire::Frames& frames) {
  std::string input;
  input += static_cast<char>(frames.header.size() & 0xFFU);
  input += static_cast<char>(frames.header.size() >> 8U);
  input += frames.header;
  input.append(reinterpret_cast<const char*>(frames.payload.data()), frames.payload.size());
  return input;
}

/// Decodes one input; an accepted message must stay the same through another round.
template <typename Decode>
void check_frames(const std::uint8_t* data, std::size_t size, Decode decode) {
  if (size < 2) {
    return;
  }
  const std::span input(reinterpret_cast<const std::byte*>(data + 2), size - 2);
  const std::size_t header = std::min<std::size_t>(data[0] + 256U * data[1], input.size());
  const std::array frames = {input.first(header), input.subspan(header)};
  const auto message = decode(frames);
  if (!message) {
    require(!message.error().message.empty(), "a refusal says why");
    return;
  }
  const wire::Frames first = wire::encode(*message, 1);
  const std::array again = {std::as_bytes(std::span(first.header)),
                            std::span(std::as_const(first.payload))};
  const auto second = decode(again);
  require(second.has_value(), "what was accepted is accepted again");
  const wire::Frames last = wire::encode(*second, 1);
  require(first.header == last.header && first.payload == last.payload,
          "a second round changes nothing");
}

}  // namespace tapas::fuzz
