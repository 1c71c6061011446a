#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "daemon/store/database.h"

#include <string>

namespace tapas::daemon {

/// Makes a fresh file ours, or requires that it is: a sound TAPAS database of a schema that this
/// version reads. Deletes nothing. docs/store.md has the tables.
[[nodiscard]] Result<void> prepare_schema(Database& database, const std::string& path);

/// The file is ours and of a schema that this version reads; changes nothing.
[[nodiscard]] Result<void> require_schema(Database& database, const std::string& path);

/// Counts the stored term up by one, durably, and returns it.
[[nodiscard]] Result<Term> take_next_term(Database& database);

}  // namespace tapas::daemon
