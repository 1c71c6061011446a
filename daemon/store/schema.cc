#include "daemon/store/schema.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapas::daemon {
namespace {

constexpr std::int64_t kSchemaVersion = 4;
constexpr std::int64_t kApplicationId = 0x54415053;  // "TAPS"

constexpr const char* kCreate = R"sql(
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
CREATE TABLE meta (
  key   TEXT PRIMARY KEY NOT NULL,
  value INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES ('term', 0);
CREATE TABLE plan (
  job              TEXT NOT NULL,
  epoch            INTEGER NOT NULL,
  parent           INTEGER NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('proposed', 'active', 'superseded', 'aborted')),
  trigger          TEXT NOT NULL,
  created_ns       INTEGER NOT NULL,
  predicted_step_s REAL NOT NULL,
  body             TEXT NOT NULL,
  PRIMARY KEY (job, epoch)
) STRICT;
CREATE TABLE decision (
  job         TEXT NOT NULL,
  decision    INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  reason_code TEXT NOT NULL,
  sentence    TEXT NOT NULL,
  evidence    TEXT NOT NULL,
  wall_ns     INTEGER NOT NULL,
  PRIMARY KEY (job, decision)
) STRICT;
CREATE TABLE switch (
  job        TEXT NOT NULL,
  to_epoch   INTEGER NOT NULL,
  from_epoch INTEGER NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('running', 'commit_decided', 'done', 'aborted')),
  reason     TEXT NOT NULL,
  wall_ns    INTEGER NOT NULL,
  PRIMARY KEY (job, to_epoch)
) STRICT;
CREATE TABLE event (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  job      TEXT NOT NULL,
  kind     TEXT NOT NULL,
  node     TEXT NOT NULL,
  sentence TEXT NOT NULL,
  evidence TEXT NOT NULL,
  wall_ns  INTEGER NOT NULL
) STRICT;
CREATE TABLE operator_action (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  who     TEXT NOT NULL,
  action  TEXT NOT NULL,
  reason  TEXT NOT NULL,
  outcome TEXT NOT NULL,
  wall_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE node_state (
  node    TEXT PRIMARY KEY NOT NULL,
  drained INTEGER NOT NULL CHECK (drained IN (0, 1)),
  reason  TEXT NOT NULL,
  wall_ns INTEGER NOT NULL
) STRICT;
PRAGMA application_id = 1413566547;
PRAGMA user_version = 1;
COMMIT;
)sql";
static_assert(kApplicationId == 1413566547);

// What is remembered of devices, of healthy jobs and of automatic switches; pins.
constexpr const char* kFrom1To2 = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE device (
  job        TEXT NOT NULL,
  device     TEXT NOT NULL,
  node       TEXT NOT NULL,
  slot       INTEGER NOT NULL,
  slow       INTEGER NOT NULL CHECK (slow IN (0, 1)),
  slowdown   REAL NOT NULL,
  since_s    REAL NOT NULL,
  until_s    REAL NOT NULL,
  episodes   INTEGER NOT NULL,
  slow_s     REAL NOT NULL,
  planned_at REAL NOT NULL,
  wall_ns    INTEGER NOT NULL,
  PRIMARY KEY (job, device)
) STRICT;
CREATE TABLE learnt (
  job            TEXT PRIMARY KEY NOT NULL,
  healthy_step_s REAL NOT NULL,
  healthy_epoch  INTEGER NOT NULL,
  calibration    REAL NOT NULL,
  wall_ns        INTEGER NOT NULL
) STRICT;
CREATE TABLE automatic_switch (
  job           TEXT NOT NULL,
  epoch         INTEGER NOT NULL,
  time_s        REAL NOT NULL,
  nodes         TEXT NOT NULL,
  rests_until_s REAL NOT NULL,
  wall_ns       INTEGER NOT NULL,
  PRIMARY KEY (job, epoch)
) STRICT;
ALTER TABLE node_state ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1));
ALTER TABLE node_state ADD COLUMN pin_reason TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 2;
COMMIT;
)sql";

// Slow links, the loss so far and the running trial.
constexpr const char* kFrom2To3 = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE slow_link (
  job         TEXT NOT NULL,
  source      TEXT NOT NULL,
  destination TEXT NOT NULL,
  part        TEXT NOT NULL,
  slowdown    REAL NOT NULL,
  before_s    REAL NOT NULL,
  since_s     REAL NOT NULL,
  planned     INTEGER NOT NULL CHECK (planned IN (0, 1)),
  wall_ns     INTEGER NOT NULL,
  PRIMARY KEY (job, source, destination)
) STRICT;
CREATE TABLE loss (
  job     TEXT PRIMARY KEY NOT NULL,
  lost_s  REAL NOT NULL,
  until_s REAL NOT NULL,
  wall_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE trial (
  job            TEXT PRIMARY KEY NOT NULL,
  epoch          INTEGER NOT NULL,
  decision       INTEGER NOT NULL,
  nodes          TEXT NOT NULL,
  before_s       REAL NOT NULL,
  before_model_s REAL NOT NULL,
  may_roll_back  INTEGER NOT NULL CHECK (may_roll_back IN (0, 1)),
  open           INTEGER NOT NULL CHECK (open IN (0, 1)),
  wall_ns        INTEGER NOT NULL
) STRICT;
PRAGMA user_version = 3;
COMMIT;
)sql";

// Late data loaders.
constexpr const char* kFrom3To4 = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE late_loader (
  job      TEXT NOT NULL,
  node     TEXT NOT NULL,
  slot     INTEGER NOT NULL,
  session  INTEGER NOT NULL,
  before   REAL NOT NULL,
  slowdown REAL NOT NULL,
  wall_ns  INTEGER NOT NULL,
  PRIMARY KEY (job, node, slot)
) STRICT;
PRAGMA user_version = 4;
COMMIT;
)sql";

struct Header {
  std::int64_t application = 0;
  std::int64_t version = 0;
  std::int64_t tables = 0;
};

Result<Header> read_header(Database& database) {
  Header header;
  Result<void> ok = database.each("PRAGMA application_id",
                                  [&](const Row& row) { header.application = row.integer(0); });
  if (ok) {
    ok = database.each("PRAGMA user_version",
                       [&](const Row& row) { header.version = row.integer(0); });
  }
  if (ok) {
    ok = database.each("SELECT count(*) FROM sqlite_schema",
                       [&](const Row& row) { header.tables = row.integer(0); });
  }
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  return header;
}

Result<void> require_ours(const Header& header, const std::string& path) {
  if (header.application != kApplicationId) {
    return fail(ErrorCode::kInvalid, "{}: a SQLite database, but not one of TAPAS", path);
  }
  return {};
}

Result<void> require_known(const Header& header, const std::string& path) {
  if (header.version > kSchemaVersion) {
    return fail(ErrorCode::kInvalid,
                "{}: schema {} is newer than the {} this version reads; install the newer tapasd",
                path, header.version, kSchemaVersion);
  }
  return {};
}

Result<void> migrate(Database& database, std::int64_t version) {
  constexpr std::array kSteps = {kFrom1To2, kFrom2To3, kFrom3To4};
  for (; version < kSchemaVersion; ++version) {
    if (auto ok = database.script(kSteps[static_cast<std::size_t>(version) - 1]); !ok) {
      return ok;
    }
  }
  return {};
}

}  // namespace

Result<void> prepare_schema(Database& database, const std::string& path) {
  constexpr const char* kRescue =
      "nothing was changed; move it aside or restore a copy, then start again";
  const auto header = read_header(database);
  if (!header) {
    return fail(ErrorCode::kIo, "{}; {}", header.error().message, kRescue);
  }
  if (header->tables == 0 && header->application == 0) {
    const auto created = database.script(kCreate);
    return created ? migrate(database, 1) : created;
  }
  if (auto ok = require_ours(*header, path); !ok) {
    return fail(ok.error().code, "{}; {}", ok.error().message, kRescue);
  }
  if (auto ok = require_known(*header, path); !ok) {
    return ok;
  }
  std::string finding;
  if (auto ok =
          database.each("PRAGMA quick_check(1)", [&](const Row& row) { finding = row.text(0); });
      !ok) {
    return fail(ErrorCode::kIo, "{}; {}", ok.error().message, kRescue);
  }
  if (finding != "ok") {
    return fail(ErrorCode::kIo, "{}: the database is damaged ({}); {}", path, finding, kRescue);
  }
  if (auto ok = database.script("PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = 67108864;");
      !ok || header->version == kSchemaVersion) {
    return ok;
  }
  return migrate(database, header->version);
}

Result<void> require_schema(Database& database, const std::string& path) {
  const auto header = read_header(database);
  if (!header) {
    return tl::unexpected(header.error());
  }
  const auto ok = require_ours(*header, path);
  return ok ? require_known(*header, path) : ok;
}

Result<Term> take_next_term(Database& database) {
  if (auto ok = database.script("PRAGMA synchronous = FULL;"); !ok) {
    return tl::unexpected(ok.error());
  }
  std::uint64_t term = 0;
  if (auto ok =
          database.each("UPDATE meta SET value = value + 1 WHERE key = 'term' RETURNING value",
                        [&](const Row& row) { term = row.counter(0); });
      !ok) {
    return tl::unexpected(ok.error());
  }
  if (term == 0) {
    return fail(ErrorCode::kIo, "the store has no term; its meta table was edited by hand");
  }
  return Term(term);
}

}  // namespace tapas::daemon
