#include "agent/probe/messages.h"
#include "target.h"

#include <algorithm>

using namespace tapas::agent::probe;
using tapas::fuzz::require;

namespace {

/// What is accepted is the same when it is said again.
template <typename Parse>
void try_as(std::string_view line, Parse parse) {
  const auto heard = parse(line);
  if (heard) {
    const std::string again = to_line(*heard);
    const auto twice = parse(again);
    require(twice.has_value() && to_line(*twice) == again, "what was heard can be said");
    return;
  }
  const std::string& why = heard.error().message;
  require(!why.empty() &&
              std::all_of(why.begin(), why.end(), [](char c) { return c >= 0x20 && c < 0x7f; }),
          "a refusal says why, in text that a terminal can show");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = tapas::fuzz::as_text(data, size);
  try_as(line, parse_hello);
  try_as(line, parse_load);
  try_as(line, parse_sent);
  try_as(line, parse_received);
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  Hello hello;
  hello.token = "0123456789abcdef";
  hello.nominal_bytes_per_s = 1.25e9;
  return {to_line(hello), to_line(Load{1e8, 2, 1U << 30U, 1.25e9}), to_line(Sent{1000, 3, 0.25}),
          to_line(Received{250'000'000, 2, 1, 1.2e8, 0.5}), refusal("wrong token")};
}
