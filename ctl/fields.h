#pragma once

#include "base/json/json.h"

#include <cstdint>
#include <string>
#include <string_view>

/// Reading answers of the daemon for display. A field that is missing or of another type is shown
/// as unknown instead of failing the whole screen: at 3 a.m. half a status is better than none.
namespace tapas::ctl {

/// NaN when absent, so that it prints as "-".
[[nodiscard]] double number_at(const json::Value& value, std::string_view key);
/// 0 for anything but an integer that is not negative.
[[nodiscard]] std::uint64_t count_of(const json::Value& value);
[[nodiscard]] std::uint64_t count_at(const json::Value& value, std::string_view key);
[[nodiscard]] bool flag_at(const json::Value& value, std::string_view key);
[[nodiscard]] std::string text_at(const json::Value& value, std::string_view key,
                                  std::string_view fallback = {});
/// An empty array or object when absent.
[[nodiscard]] const json::Value& array_at(const json::Value& value, std::string_view key);
[[nodiscard]] const json::Value& object_at(const json::Value& value, std::string_view key);

}  // namespace tapas::ctl
