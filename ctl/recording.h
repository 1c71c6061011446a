#pragma once

#include "base/result.h"

#include <string_view>

namespace tapas::ctl {

/// What `tapasctl replay` reads.
enum class Recording {
  kTable,      ///< comma-separated: ranks or step times
  kTransfers,  ///< comma-separated: transfers between nodes
  kStore,      ///< tapasd's database
  kInspector,  ///< JSON lines of NCCL's inspector plugin
  kDecisions,  ///< what tapasd recorded: all its core was told and did
  kEvents,     ///< what `tapasctl events -o json` prints, or its events one per line
};

/// The first bytes are those of a store.
[[nodiscard]] bool is_store(std::string_view text);
/// By the content: the first bytes, the header line or the first object. JSON that is none of ours
/// is an error that says what it is; text of unknown kind counts as a table, whose reader explains.
[[nodiscard]] Result<Recording> recording_of(std::string_view name, std::string_view text);

}  // namespace tapas::ctl
