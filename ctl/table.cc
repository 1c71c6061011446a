#include "ctl/table.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tapas::ctl {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

/// Characters of UTF-8 text: continuation bytes take no room on the screen.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  TAPAS_CHECK(cells.size() == columns_.size(), "{} cells in a table of {} columns", cells.size(),
              columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  widths.reserve(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (const auto& row : rows_) {
      width = std::max(width, width_of(row[c]));
    }
    widths.push_back(width);
  }

  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - width_of(cell), ' ');
      text += c == 0 ? "" : "  ";
      text += columns_[c].align == Align::kRight ? padding + cell : cell + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& row : rows_) {
    line([&](std::size_t c) -> const std::string& { return row[c]; });
  }
  return out;
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) {
    return "-";
  }
  if (seconds < 0) {
    return "-" + format_seconds(-seconds);
  }
  if (seconds == 0) {
    return "0 s";
  }
  if (seconds < 0.9995e-3) {
    return fmt::format("{:.0f} us", seconds * 1e6);
  }
  if (seconds < 0.9995) {
    return fmt::format("{:.1f} ms", seconds * 1e3);
  }
  if (seconds < 99.995) {
    return fmt::format("{:.2f} s", seconds);
  }
  const auto whole = static_cast<std::uint64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) {
    return "-";
  }
  if (std::abs(bytes) < 1000) {
    return fmt::format("{:.0f} B", bytes);
  }
  constexpr std::array kUnits{"kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  double value = bytes / 1000;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 9.995 ? 2 : 1, kUnits[unit]);
}

std::string format_percent(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.1f} %", ratio * 100) : "-";
}

std::string format_number(double value) {
  std::string text = fmt::format("{:.4f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') {
    text.pop_back();
  }
  return text;
}

std::string format_count(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string printable(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  // U+0080..U+009F are control characters too; in UTF-8 they are C2 80..C2 9F.
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i] == '\xC2' && static_cast<unsigned char>(out[i + 1]) < 0xA0) {
      out.replace(i, 2, "?");
    }
  }
  return out;
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tapas::ctl
