#include "ctl/recording.h"

#include "base/json/json.h"
#include "ctl/fields.h"
#include "ctl/table.h"
#include "ctl/trace.h"
#include "daemon/recording/format.h"

#include <string>

namespace tapas::ctl {

bool is_store(std::string_view text) {
  constexpr std::string_view kSqlite("SQLite format 3\0", 16);
  return text.starts_with(kSqlite);
}

Result<Recording> recording_of(std::string_view name, std::string_view text) {
  if (is_store(text)) {
    return Recording::kStore;
  }
  if (daemon::recording::is_recording(text)) {
    return Recording::kDecisions;
  }
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || (text[start] != '{' && text[start] != '[')) {
    return has_links(text) ? Recording::kTransfers : Recording::kTable;
  }
  auto first = json::parse(text.substr(start, text.find('\n', start) - start));
  if (!first) {
    first = json::parse(text.substr(start));  // Over several lines.
  }
  if (!first) {
    return fail(ErrorCode::kInvalid, "{}: {}", name, first.error().message);
  }
  const std::string schema = text_at(*first, "schema");
  if (schema == "tapas.events/1" ||
      (schema.empty() && first->contains("kind") && first->contains("sentence"))) {
    return Recording::kEvents;
  }
  if (first->contains("header") && first->contains("metadata")) {
    return Recording::kInspector;
  }
  return fail(ErrorCode::kInvalid,
              "{}: JSON{}; expected \"tapas.events/1\" or events one per line (tapasctl events -o "
              "json), a recording of tapasd, or lines of NCCL's inspector",
              name, schema.empty() ? "" : " of schema \"" + printable(schema) + "\"");
}

}  // namespace tapas::ctl
