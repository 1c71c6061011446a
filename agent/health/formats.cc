#include "agent/health/formats.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace tapas::agent::health {
namespace {

/// Takes `prefix` off the front of `text`.
bool skip(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) {
    return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes a number off the front of `text`; it has to begin with a digit, so no sign, "nan" or
/// "inf".
template <typename Number>
std::optional<Number> take(std::string_view& text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') {
    return std::nullopt;
  }
  Number value = {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) {
  if (skip(text, "0x")) {
    std::uint64_t value = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value, 16);
    return error == std::errc() && end == last ? std::optional(value) : std::nullopt;
  }
  const auto value = take<std::uint64_t>(text);
  return text.empty() ? value : std::nullopt;
}

std::optional<double> parse_gt_per_s(std::string_view text) {
  const auto value = take<double>(text);
  return value && *value > 0 && skip(text, " GT/s") ? value : std::nullopt;
}

std::optional<unsigned> parse_lanes(std::string_view text) {
  static constexpr std::array kWidths = {1U, 2U, 4U, 8U, 12U, 16U, 32U};
  const auto value = take<unsigned>(text);
  const bool known =
      value && text.empty() && std::find(kWidths.begin(), kWidths.end(), *value) != kWidths.end();
  return known ? value : std::nullopt;
}

std::optional<IbRate> parse_ib_rate(std::string_view text) {
  const auto gigabits = take<double>(text);
  if (!gigabits || *gigabits <= 0 || !skip(text, " Gb/sec (")) {
    return std::nullopt;
  }
  const auto lanes = take<unsigned>(text);
  if (!lanes || *lanes == 0 || !skip(text, "X")) {
    return std::nullopt;
  }
  return IbRate{*gigabits * 1e9, *lanes};
}

std::optional<std::string> parse_ib_state(std::string_view text) {
  if (!take<unsigned>(text) || !skip(text, ": ") || text.empty()) {
    return std::nullopt;
  }
  return std::string(text);
}

std::optional<double> parse_net_speed(std::string_view text) {
  const auto megabits = parse_count(text);
  if (!megabits || *megabits == 0 || *megabits == 0xffff || *megabits >= 0xffffffff) {
    return std::nullopt;
  }
  return static_cast<double>(*megabits) * 1e6;
}

std::optional<PressureLine> parse_pressure(std::string_view text, std::string_view line) {
  while (!text.empty()) {
    std::string_view rest = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), rest.size() + 1));
    if (!skip(rest, line) || !skip(rest, " avg10=")) {
      continue;
    }
    const auto percent = take<double>(rest);
    const std::size_t total = rest.find(" total=");
    if (!percent || *percent > 100 || total == std::string_view::npos) {
      return std::nullopt;
    }
    const auto total_us = parse_count(rest.substr(total + std::string_view(" total=").size()));
    return total_us ? std::optional(PressureLine{*percent / 100, *total_us}) : std::nullopt;
  }
  return std::nullopt;
}

bool is_pci_address(std::string_view name) {
  const std::size_t colon = name.find(':');
  if (colon < 4 || colon > 8 || name.size() != colon + 8) {
    return false;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char expected = i == colon || i == colon + 3 ? ':' : i == colon + 6 ? '.' : 'x';
    const bool good = expected == 'x' ? kHex.find(name[i]) != kHex.npos : name[i] == expected;
    if (!good) {
      return false;
    }
  }
  return true;
}

}  // namespace tapas::agent::health
