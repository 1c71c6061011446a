#include "daemon/store/journal.h"

#include "daemon/store/database.h"
#include "daemon/store/rows.h"
#include "daemon/store/schema.h"

namespace tapas::daemon {

Result<void> read_journal(const std::string& path,
                          const std::function<void(const StoredEvent&, double done)>& line) {
  const auto database = Database::open_read_only(path);
  if (!database) {
    return tl::unexpected(database.error());
  }
  if (auto ok = require_schema(**database, path); !ok) {
    return ok;
  }
  std::int64_t first = 0;
  std::int64_t last = 0;
  if (auto ok = (*database)->each("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM event",
                                  [&](const Row& row) {
                                    first = row.integer(0);
                                    last = row.integer(1);
                                  });
      !ok) {
    return ok;
  }
  return (*database)->each(
      "SELECT id, job, kind, node, sentence, evidence, wall_ns FROM event WHERE id <= ?"
      " ORDER BY id",
      [&](const Row& row) {
        const StoredEvent event = stored_event(row);
        line(event, static_cast<double>(event.id - first) / static_cast<double>(last - first + 1));
      },
      last);
}

}  // namespace tapas::daemon
