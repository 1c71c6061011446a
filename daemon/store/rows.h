#pragma once

#include "base/result.h"
#include "daemon/core/core.h"
#include "daemon/core/event.h"
#include "daemon/jobs.h"
#include "daemon/store/database.h"
#include "daemon/store/journal.h"

#include <string>
#include <vector>

namespace tapas::daemon {

/// Inserts a row, or overwrites the one with its key (docs/store.md says which).
[[nodiscard]] Result<void> write_row(Database& database, const JobMap& jobs, const StoreRow& row);

/// What the store holds of these jobs, for Core's constructor; `term` stays 0. A plan that its job
/// no longer reads is an error that names both.
[[nodiscard]] Result<Restored> restore(Database& database, const JobMap& jobs);

/// Of columns id, job, kind, node, sentence, evidence, wall_ns.
[[nodiscard]] StoredEvent stored_event(const Row& row);

/// {"key": value, ...}, numbers as numbers.
[[nodiscard]] std::string evidence_text(const std::vector<Evidence>& evidence);

/// Deletes old plans, switches, decisions and operators' actions beyond fixed numbers: never what
/// runs, is under way, or is the parent of such a plan.
[[nodiscard]] Result<void> trim_history(Database& database);

}  // namespace tapas::daemon
