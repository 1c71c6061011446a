#pragma once

#include "base/queue.h"
#include "base/result.h"
#include "daemon/core/core.h"
#include "daemon/core/event.h"
#include "daemon/store/journal.h"
#include "daemon/store/pid_file.h"
#include "daemon/store/rows.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace tapas::daemon {

class Database;

// Rows as the operator API shows them; `evidence` is the text of a JSON object.
struct StoredPlan {
  Epoch epoch;
  Epoch parent;
  std::string status;
  std::string trigger;
  std::int64_t wall_ns = 0;
  double predicted_step_s = 0;
};
struct StoredDecision {
  std::uint64_t decision = 0;
  Epoch epoch;
  std::string reason_code;
  std::string sentence;
  std::string evidence;
  std::int64_t wall_ns = 0;
};

struct StoreOptions {
  std::string state_dir;
  std::int64_t event_rows = 1'000'000;
};

/// The only writer of the database (DIR/tapas.db), on a thread of its own. Writes that came while
/// one transaction ran share the next; with synchronous=FULL as soon as somebody waits for one of
/// them. What nobody waits for and the disk refuses is kept and written before anything that comes
/// later, up to a bound. All methods may be called from any thread; callbacks run on the store's
/// thread.
class Store {
 public:
  /// Called once per write that somebody waits for (StoreWrite::write != 0); and, when the queue
  /// is full, on the caller's thread of write().
  using OnDone = std::function<void(StoreDone)>;
  /// Journal lines are readable up to this id; called once at the start, too.
  using OnEvents = std::function<void(std::int64_t last)>;
  template <typename T>
  using Reply = std::function<void(Result<T>)>;

  /// Claims the directory, opens or creates the database, restores the jobs and takes a new term.
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(const StoreOptions& options,
                                                           JobMap jobs);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// What open() found, with this start's term.
  [[nodiscard]] const Restored& restored() const { return restored_; }

  void start(OnDone on_done, OnEvents on_events);
  /// Writes what is queued, then ends the thread.
  void stop();

  void write(StoreWrite write);

  /// Lines after `after`, oldest first; without `after` the latest ones, also oldest first.
  void events(std::optional<std::int64_t> after, std::size_t limit,
              Reply<std::vector<StoredEvent>> reply);
  void plans(std::string job, Reply<std::vector<StoredPlan>> reply);
  /// JSON text of a plan; kNotFound names the epoch.
  void plan_body(std::string job, Epoch epoch, Reply<std::string> reply);
  /// Newest first.
  void decisions(std::string job, std::size_t limit, Reply<std::vector<StoredDecision>> reply);

  /// Writes that the disk refused and that are tried again with the next.
  [[nodiscard]] std::uint64_t unwritten() const { return unwritten_; }

  /// Grows while the thread lives and makes progress.
  [[nodiscard]] std::uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  using Query = std::function<void(Database&)>;
  using Item = std::variant<StoreWrite, Query>;

  Store(PidFile pid_file, std::unique_ptr<Database> database, JobMap jobs, Restored restored,
        std::int64_t event_rows);
  template <typename T>
  void ask(Reply<T> reply, std::function<Result<T>(Database&)> read);
  std::int64_t last_event();
  void run();
  /// What could not be written before comes first.
  void commit(std::vector<StoreWrite> writes);
  void keep(StoreWrite write);
  Result<void> write_all(const std::vector<StoreWrite>& writes,
                         std::vector<Result<void>>& outcomes);
  void trim(std::int64_t last_event);

  PidFile pid_file_;
  std::unique_ptr<Database> database_;
  const JobMap jobs_;
  const Restored restored_;
  const std::int64_t event_rows_;
  std::int64_t trimmed_at_ = 0;
  std::deque<StoreWrite> kept_;
  OnDone on_done_;
  OnEvents on_events_;
  BoundedQueue<Item, WhenFull::kRefuse> queue_{1U << 16U};
  std::atomic<std::uint64_t> beats_{0};
  std::atomic<std::uint64_t> unwritten_{0};
  std::thread thread_;
};

}  // namespace tapas::daemon
