#pragma once

#include "base/json/json.h"

#include <string>
#include <string_view>

/// Journal lines of tapas.events/1, for people.
namespace tapas::ctl {

/// "2026-03-01T10:20:30.123Z" becomes "03-01 10:20:30.123"; other text stays as it is.
[[nodiscard]] std::string short_time(std::string_view iso);

/// One line without its newline: id, time, kind, sentence.
[[nodiscard]] std::string event_line(const json::Value& event);

}  // namespace tapas::ctl
