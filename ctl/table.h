#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Text for people: tables, units, and names that are safe to print on a terminal.
namespace tapas::ctl {

enum class Align { kLeft, kRight };

/// Rows of text in columns as wide as their widest cell, two spaces apart.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns);

  /// Requires as many cells as there are columns.
  void add_row(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  /// Title line and rows, each ended by a newline, no blanks at line ends.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "0 s", "850 us", "12.4 ms", "17.32 s", "4 min 10 s", "2 h 05 min"; "-" when not finite.
[[nodiscard]] std::string format_seconds(double seconds);
/// Decimal units: "512 B", "1.20 GB".
[[nodiscard]] std::string format_bytes(double bytes);
/// 0.034 is "3.4 %".
[[nodiscard]] std::string format_percent(double ratio);
/// Up to four decimals, no trailing zeros.
[[nodiscard]] std::string format_number(double value);
/// "1 layer", "2 layers".
[[nodiscard]] std::string format_count(std::uint64_t count, std::string_view noun);

/// The text with control characters shown as '?', so that no name or reason can drive a terminal.
[[nodiscard]] std::string printable(std::string_view text);

/// The name of `names` that `word` was probably meant to be; empty when none is near.
[[nodiscard]] std::string nearest_name(std::string_view word,
                                       const std::vector<std::string>& names);

}  // namespace tapas::ctl
