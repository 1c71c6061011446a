#pragma once

#include "base/result.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace tapas::daemon {

/// One row of a result; columns count from 0. Valid only inside the callback that receives it.
class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] std::uint64_t counter(int column) const {
    return static_cast<std::uint64_t>(integer(column));
  }
  [[nodiscard]] double number(int column) const;
  [[nodiscard]] std::string text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

/// A SQLite connection with its prepared statements. One thread at a time. Errors are kIo, or
/// kConflict for what contradicts the tables' rules, and name the file and what SQLite said.
class Database {
 public:
  /// Opens or creates the file; reads nothing yet.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path);
  /// Opens a file that may be in use and changes nothing, not even beside it.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open_read_only(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Statements without parameters or results, several at once.
  [[nodiscard]] Result<void> script(const std::string& sql);

  /// One statement with its parameters; kept prepared under its text.
  template <typename... Args>
  [[nodiscard]] Result<void> run(std::string_view sql, const Args&... args) {
    return each(
        sql, [](const Row&) {}, args...);
  }

  /// The same, with a callback for each row.
  template <typename... Args>
  [[nodiscard]] Result<void> each(std::string_view sql, const std::function<void(const Row&)>& row,
                                  const Args&... args) {
    auto statement = prepared(sql);
    if (!statement) {
      return tl::unexpected(statement.error());
    }
    int index = 0;
    (bind(*statement, ++index, args), ...);
    return step_all(*statement, row);
  }

  [[nodiscard]] std::int64_t last_row_id() const;

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}
  static Result<std::unique_ptr<Database>> open(const std::string& path, const std::string& name,
                                                int flags);
  Result<sqlite3_stmt*> prepared(std::string_view sql);
  static void bind(sqlite3_stmt* statement, int index, std::int64_t value);
  static void bind(sqlite3_stmt* statement, int index, std::uint64_t value) {
    bind(statement, index, static_cast<std::int64_t>(value));
  }
  static void bind(sqlite3_stmt* statement, int index, double value);
  static void bind(sqlite3_stmt* statement, int index, std::string_view value);
  Result<void> step_all(sqlite3_stmt* statement, const std::function<void(const Row&)>& row);
  tl::unexpected<Error> error(std::string_view doing) const;

  std::string path_;
  sqlite3* handle_ = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

}  // namespace tapas::daemon
