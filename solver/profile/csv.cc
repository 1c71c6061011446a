#include "solver/profile/csv.h"

#include "solver/profile/readers.h"

#include <charconv>
#include <cmath>

namespace tapas::solver::profile {
namespace {

constexpr std::size_t kMaxRows = 1'000'000;

}  // namespace

std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) {
      return fields;
    }
    line.remove_prefix(comma + 1);
  }
}

Result<Csv> Csv::parse(const File& file, const std::vector<std::string_view>& columns) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  Csv csv;
  csv.name_ = file.name;
  csv.columns_ = columns;
  std::string_view rest = file.text;
  if (rest.substr(0, kMark.size()) == kMark) {
    rest.remove_prefix(kMark.size());
  }
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = rest.find('\n');
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!text.empty() && text.back() == '\r') {
      text.remove_suffix(1);
    }
    if (text.empty()) {
      if (rest.find_first_not_of("\r\n") == std::string_view::npos) {
        break;
      }
      return fail(ErrorCode::kInvalid, "{}:{}: empty line inside the table", file.name, line);
    }
    std::vector<std::string_view> fields = split_fields(text);
    if (line == 1) {
      if (fields != columns) {
        return fail(ErrorCode::kInvalid, "{}:1: expected the columns \"{}\"", file.name,
                    fmt::join(columns, ","));
      }
      continue;
    }
    if (fields.size() != columns.size()) {
      return fail(ErrorCode::kInvalid, "{}:{}: {} fields where the header has {}", file.name, line,
                  fields.size(), columns.size());
    }
    if (csv.rows_.size() == kMaxRows) {
      return fail(ErrorCode::kInvalid, "{}:{}: more than {} rows", file.name, line, kMaxRows);
    }
    csv.rows_.push_back({line, std::move(fields)});
  }
  if (csv.rows_.empty()) {
    return fail(ErrorCode::kInvalid, "{}: a table with the columns \"{}\" has no rows", file.name,
                fmt::join(columns, ","));
  }
  return csv;
}

Result<double> Csv::number(std::size_t row, std::size_t column, double min, double max) const {
  const std::string_view field = text(row, column);
  double value = 0;
  const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (problem != std::errc() || end != field.data() + field.size() || !(value >= min) ||
      !(value <= max)) {
    return fail(ErrorCode::kInvalid, "{}: {} is \"{}\", expected a number from {} to {}",
                where(row), columns_[column], field, min, max);
  }
  return value;
}

Result<std::uint32_t> Csv::integer(std::size_t row, std::size_t column, std::uint32_t min,
                                   std::uint32_t max) const {
  const auto value = whole(text(row, column), min, max);
  if (!value) {
    return fail(ErrorCode::kInvalid, "{}: {} is \"{}\", expected a whole number from {} to {}",
                where(row), columns_[column], text(row, column), min, max);
  }
  return *value;
}

std::string Csv::where(std::size_t row) const {
  return fmt::format("{}:{}", name_, rows_[row].line);
}

}  // namespace tapas::solver::profile
