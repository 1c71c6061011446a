#pragma once

#include "base/result.h"
#include "solver/profile/profile.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::solver::profile {

/// At commas; no quoting.
[[nodiscard]] std::vector<std::string_view> split_fields(std::string_view line);

/// A strict table: a header line that must be exactly `columns`, then rows with as many fields, no
/// quoting. A byte-order mark, CR before LF and empty lines at the end are tolerated.
class Csv {
 public:
  /// `file` must outlive this.
  [[nodiscard]] static Result<Csv> parse(const File& file,
                                         const std::vector<std::string_view>& columns);

  [[nodiscard]] std::size_t rows() const { return rows_.size(); }
  [[nodiscard]] std::string_view text(std::size_t row, std::size_t column) const {
    return rows_[row].fields[column];
  }
  [[nodiscard]] Result<double> number(std::size_t row, std::size_t column, double min,
                                      double max) const;
  [[nodiscard]] Result<std::uint32_t> integer(std::size_t row, std::size_t column,
                                              std::uint32_t min, std::uint32_t max) const;
  /// "file:line", for errors about a row.
  [[nodiscard]] std::string where(std::size_t row) const;

 private:
  struct Row {
    std::size_t line = 0;
    std::vector<std::string_view> fields;
  };
  std::string name_;
  std::vector<std::string_view> columns_;
  std::vector<Row> rows_;
};

}  // namespace tapas::solver::profile
