#include "daemon/store/store.h"

#include "base/log/log.h"
#include "daemon/store/database.h"
#include "daemon/store/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr std::size_t kGroup = 1024;       // writes per transaction
constexpr std::int64_t kTrimEvery = 1000;  // journal lines between two trims
constexpr std::size_t kMostKept = 4096;    // writes that wait for room on the disk
constexpr std::string_view kLog = "store";

bool has_event(const StoreWrite& write) {
  return std::any_of(write.rows.begin(), write.rows.end(),
                     [](const StoreRow& row) { return std::holds_alternative<EventRow>(row); });
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const StoreOptions& options, JobMap jobs) {
  auto pid_file = PidFile::claim(options.state_dir);
  if (!pid_file) {
    return tl::unexpected(pid_file.error());
  }
  const std::string path = options.state_dir + "/tapas.db";
  auto database = Database::open(path);
  if (!database) {
    return tl::unexpected(database.error());
  }
  if (auto ok = prepare_schema(**database, path); !ok) {
    return tl::unexpected(ok.error());
  }
  auto restored = restore(**database, jobs);
  if (!restored) {
    return fail_in(path, restored.error());
  }
  const auto term = take_next_term(**database);
  if (!term) {
    return fail_in(path, term.error());
  }
  restored->term = *term;
  return std::unique_ptr<Store>(new Store(std::move(*pid_file), std::move(*database),
                                          std::move(jobs), std::move(*restored),
                                          options.event_rows));
}

Store::Store(PidFile pid_file, std::unique_ptr<Database> database, JobMap jobs, Restored restored,
             std::int64_t event_rows)
    : pid_file_(std::move(pid_file)),
      database_(std::move(database)),
      jobs_(std::move(jobs)),
      restored_(std::move(restored)),
      event_rows_(event_rows) {}

Store::~Store() { stop(); }

void Store::start(OnDone on_done, OnEvents on_events) {
  on_done_ = std::move(on_done);
  on_events_ = std::move(on_events);
  thread_ = std::thread([this] { run(); });
}

void Store::stop() {
  queue_.close();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Store::write(StoreWrite write) {
  const std::uint64_t id = write.write;
  if (queue_.push(std::move(write))) {
    return;
  }
  log::warning_limited(kLog, "queue full",
                       "the database cannot keep up: its queue is full and rows were refused; look "
                       "at the disk under state_dir");
  if (id != 0) {
    on_done_({id, fail(ErrorCode::kUnavailable, "the store's queue is full or closed")});
  }
}

template <typename T>
void Store::ask(Reply<T> reply, std::function<Result<T>(Database&)> read) {
  const bool queued = queue_.push(
      Query([reply, read = std::move(read)](Database& database) { reply(read(database)); }));
  if (!queued) {
    reply(fail(ErrorCode::kUnavailable, "the store's queue is full or closed; try again"));
  }
}

void Store::events(std::optional<std::int64_t> after, std::size_t limit,
                   Reply<std::vector<StoredEvent>> reply) {
  ask<std::vector<StoredEvent>>(std::move(reply), [=](Database& database) {
    std::vector<StoredEvent> out;
    const auto collect = [&](const Row& row) { out.push_back(stored_event(row)); };
    const Result<void> ok =
        after ? database.each(
                    "SELECT id, job, kind, node, sentence, evidence, wall_ns FROM event"
                    " WHERE id > ? ORDER BY id LIMIT ?",
                    collect, *after, std::uint64_t{limit})
              : database.each(
                    "SELECT id, job, kind, node, sentence, evidence, wall_ns FROM event"
                    " ORDER BY id DESC LIMIT ?",
                    collect, std::uint64_t{limit});
    if (!after) {
      std::reverse(out.begin(), out.end());
    }
    return ok ? Result<std::vector<StoredEvent>>(std::move(out)) : tl::unexpected(ok.error());
  });
}

void Store::plans(std::string job, Reply<std::vector<StoredPlan>> reply) {
  ask<std::vector<StoredPlan>>(std::move(reply), [job = std::move(job)](Database& database) {
    std::vector<StoredPlan> out;
    const Result<void> ok = database.each(
        "SELECT epoch, parent, status, trigger, created_ns, predicted_step_s FROM plan"
        " WHERE job = ? ORDER BY epoch",
        [&](const Row& row) {
          out.push_back({Epoch(row.counter(0)), Epoch(row.counter(1)), row.text(2), row.text(3),
                         row.integer(4), row.number(5)});
        },
        job);
    return ok ? Result<std::vector<StoredPlan>>(std::move(out)) : tl::unexpected(ok.error());
  });
}

void Store::plan_body(std::string job, Epoch epoch, Reply<std::string> reply) {
  ask<std::string>(std::move(reply), [job = std::move(job), epoch](Database& database) {
    std::string body;
    const Result<void> ok = database.each(
        "SELECT body FROM plan WHERE job = ? AND epoch = ?",
        [&](const Row& row) { body = row.text(0); }, job, epoch.value());
    if (!ok) {
      return Result<std::string>(tl::unexpected(ok.error()));
    }
    if (body.empty()) {
      return Result<std::string>(
          fail(ErrorCode::kNotFound, "job \"{}\" has no plan with epoch {}", job, epoch));
    }
    return Result<std::string>(std::move(body));
  });
}

void Store::decisions(std::string job, std::size_t limit,
                      Reply<std::vector<StoredDecision>> reply) {
  ask<std::vector<StoredDecision>>(std::move(reply), [job = std::move(job),
                                                      limit](Database& database) {
    std::vector<StoredDecision> out;
    const Result<void> ok = database.each(
        "SELECT decision, epoch, reason_code, sentence, evidence, wall_ns FROM decision"
        " WHERE job = ? ORDER BY decision DESC LIMIT ?",
        [&](const Row& row) {
          out.push_back({row.counter(0), Epoch(row.counter(1)), row.text(2), row.text(3),
                         row.text(4), row.integer(5)});
        },
        job, std::uint64_t{limit});
    return ok ? Result<std::vector<StoredDecision>>(std::move(out)) : tl::unexpected(ok.error());
  });
}

std::int64_t Store::last_event() {
  std::int64_t last = 0;
  static_cast<void>(database_->each("SELECT seq FROM sqlite_sequence WHERE name = 'event'",
                                    [&](const Row& row) { last = row.integer(0); }));
  return last;
}

void Store::run() {
  on_events_(last_event());
  while (!queue_.closed_and_empty()) {
    beats_.fetch_add(1, std::memory_order_relaxed);
    std::vector<StoreWrite> writes;
    std::optional<Item> item = queue_.pop(std::chrono::milliseconds(500));
    for (; item; item = queue_.pop(std::chrono::milliseconds(0))) {
      if (auto* query = std::get_if<Query>(&*item)) {
        // A reader sees every write that was queued before it.
        commit(std::exchange(writes, {}));
        (*query)(*database_);
      } else {
        writes.push_back(std::move(std::get<StoreWrite>(*item)));
        if (writes.size() == kGroup) {
          commit(std::exchange(writes, {}));
        }
      }
      beats_.fetch_add(1, std::memory_order_relaxed);
    }
    commit(std::move(writes));
  }
}

void Store::keep(StoreWrite write) {
  if (kept_.size() == kMostKept) {
    log::warning_limited(kLog, "kept", "the disk refuses writes for so long that rows are lost");
    kept_.pop_front();
  }
  kept_.push_back(std::move(write));
}

void Store::commit(std::vector<StoreWrite> writes) {
  writes.insert(writes.begin(), std::make_move_iterator(kept_.begin()),
                std::make_move_iterator(kept_.end()));
  kept_.clear();
  if (writes.empty()) {
    return;
  }
  std::vector<Result<void>> outcomes(writes.size());
  if (auto ok = write_all(writes, outcomes); !ok) {
    static_cast<void>(database_->script("ROLLBACK"));  // fails when SQLite already rolled back
    std::fill(outcomes.begin(), outcomes.end(), ok);
  }
  bool events = false;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    if (!outcomes[i]) {
      log::warning_limited(kLog, "write", "not stored: " + outcomes[i].error().message);
    } else {
      events = events || has_event(writes[i]);
    }
    if (writes[i].write != 0) {
      on_done_({writes[i].write, std::move(outcomes[i])});
    } else if (!outcomes[i] && outcomes[i].error().code == ErrorCode::kIo) {
      keep(std::move(writes[i]));
    }
  }
  unwritten_ = kept_.size();
  if (events) {
    const std::int64_t last = last_event();
    trim(last);
    on_events_(last);
  }
}

/// One transaction; a write whose rows are refused leaves no trace and does not harm the others.
Result<void> Store::write_all(const std::vector<StoreWrite>& writes,
                              std::vector<Result<void>>& outcomes) {
  const bool awaited = std::any_of(writes.begin(), writes.end(),
                                   [](const StoreWrite& write) { return write.write != 0; });
  // Rows committed under NORMAL become durable with the next FULL commit: both are in one log.
  Result<void> ok = database_->script(awaited ? "PRAGMA synchronous = FULL; BEGIN IMMEDIATE"
                                              : "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE");
  for (std::size_t i = 0; ok && i < writes.size(); ++i) {
    ok = database_->script("SAVEPOINT one");
    for (std::size_t r = 0; ok && outcomes[i] && r < writes[i].rows.size(); ++r) {
      outcomes[i] = write_row(*database_, jobs_, writes[i].rows[r]);
    }
    if (ok && !outcomes[i]) {
      ok = database_->script("ROLLBACK TO one");
    }
    if (ok) {
      ok = database_->script("RELEASE one");
    }
  }
  return ok ? database_->script("COMMIT") : ok;
}

void Store::trim(std::int64_t last_event) {
  if (last_event - trimmed_at_ < kTrimEvery) {
    return;
  }
  trimmed_at_ = last_event;
  Result<void> ok = database_->run("DELETE FROM event WHERE id <= ?", last_event - event_rows_);
  if (ok) {
    ok = trim_history(*database_);
  }
  if (ok) {
    ok = database_->script("PRAGMA incremental_vacuum(1000)");
  }
  if (!ok) {
    log::warning_limited(kLog, "trim", "old rows stay: " + ok.error().message);
  }
}

}  // namespace tapas::daemon
