#include "base/json/json.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace json = tapas::json;
  for (const bool comments : {false, true}) {
    const auto value = json::parse(tapas::fuzz::as_text(data, size),
                                   {.max_bytes = 1U << 20U, .max_depth = 32, .comments = comments});
    if (!value) {
      tapas::fuzz::require(!value.error().message.empty(), "a refusal says why");
      continue;
    }
    const std::string text = json::dump(*value);
    const auto again = json::parse(text);
    tapas::fuzz::require(again.has_value() && json::dump(*again) == text,
                         "a second round changes nothing");
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {R"({"a":[1,-2.5e3,true,null,"\u00e9\ud83d\ude00\n"],"b":{"c":{}}})",
          "// comment\n{\"a\": /* b */ 1}", "[18446744073709551615,-9223372036854775808,0.1]",
          std::string(40, '[') + std::string(40, ']')};
}
