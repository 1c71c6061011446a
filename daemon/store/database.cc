#include "daemon/store/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace tapas::daemon {
namespace {

/// A path as part of a URI.
std::string uri_text(std::string_view path) {
  constexpr std::string_view kPlain =
      "/-_.~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string text;
  for (const char byte : path) {
    if (kPlain.find(byte) != std::string_view::npos) {
      text += byte;
    } else {
      text += fmt::format("%{:02X}", static_cast<unsigned char>(byte));
    }
  }
  return text;
}

}  // namespace

std::int64_t Row::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Row::number(int column) const { return sqlite3_column_double(statement_, column); }

std::string Row::text(int column) const {
  // Text first: it may convert, and then the size is that of the converted value.
  const unsigned char* data = sqlite3_column_text(statement_, column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  return data == nullptr ? std::string() : std::string(data, data + size);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  return open(path, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
}

Result<std::unique_ptr<Database>> Database::open_read_only(const std::string& path) {
  std::error_code unknown;
  // Without the file beside it nobody writes; only then it can be read where nothing may be
  // created.
  const bool in_use = std::filesystem::exists(path + "-wal", unknown);
  return open(path, "file:" + uri_text(path) + (in_use ? "" : "?immutable=1"),
              SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, const std::string& name,
                                                 int flags) {
  std::unique_ptr<Database> database(new Database(path));
  if (sqlite3_open_v2(name.c_str(), &database->handle_, flags | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK) {
    return database->error("opening");
  }
  sqlite3_extended_result_codes(database->handle_, 1);
  sqlite3_busy_timeout(database->handle_, 5000);
  return database;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) {
    sqlite3_finalize(statement);
  }
  sqlite3_close(handle_);
}

Result<void> Database::script(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return error(sql.substr(0, 40));
  }
  return {};
}

std::int64_t Database::last_row_id() const { return sqlite3_last_insert_rowid(handle_); }

Result<sqlite3_stmt*> Database::prepared(std::string_view sql) {
  if (const auto found = statements_.find(sql); found != statements_.end()) {
    return found->second;
  }
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return error(sql.substr(0, 40));
  }
  statements_.emplace(sql, statement);
  return statement;
}

void Database::bind(sqlite3_stmt* statement, int index, std::int64_t value) {
  sqlite3_bind_int64(statement, index, value);
}

void Database::bind(sqlite3_stmt* statement, int index, double value) {
  sqlite3_bind_double(statement, index, value);
}

void Database::bind(sqlite3_stmt* statement, int index, std::string_view value) {
  // The caller's arguments live until step_all() is over, so SQLite need not copy. An empty view
  // may have no data pointer, which SQLite would take for NULL.
  const char* data = value.data() == nullptr ? "" : value.data();
  sqlite3_bind_text64(statement, index, data, value.size(), SQLITE_STATIC, SQLITE_UTF8);
}

Result<void> Database::step_all(sqlite3_stmt* statement,
                                const std::function<void(const Row&)>& row) {
  int status = SQLITE_ROW;
  while ((status = sqlite3_step(statement)) == SQLITE_ROW) {
    row(Row(statement));
  }
  Result<void> outcome;
  if (status != SQLITE_DONE) {
    outcome = error(std::string_view(sqlite3_sql(statement)).substr(0, 40));
  }
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return outcome;
}

tl::unexpected<Error> Database::error(std::string_view doing) const {
  const bool refused = (sqlite3_extended_errcode(handle_) & 0xFF) == SQLITE_CONSTRAINT;
  return fail(refused ? ErrorCode::kConflict : ErrorCode::kIo, "{}: SQLite says \"{}\" ({}) at: {}",
              path_, sqlite3_errmsg(handle_), sqlite3_extended_errcode(handle_), doing);
}

}  // namespace tapas::daemon
