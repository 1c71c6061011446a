#include "ctl/journal.h"

#include "base/wall_time.h"
#include "ctl/fields.h"
#include "ctl/lines.h"
#include "ctl/table.h"
#include "daemon/store/journal.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace tapas::ctl {
namespace {

constexpr std::uint64_t kProgressEvents = 4096;

bool matters(std::string_view kind) {
  return kind == "verdict" || kind == "recovery" || kind == "session";
}

void count(Journal& journal, std::int64_t wall_ns) {
  journal.first_ns = journal.events == 0 ? wall_ns : journal.first_ns;
  journal.last_ns = wall_ns;
  ++journal.events;
}

/// The error says what is missing.
Result<void> add(Journal& journal, const json::Value& event) {
  const auto wall_ns = parse_wall_time(text_at(event, "time"));
  std::string kind = text_at(event, "kind");
  if (!wall_ns || kind.empty() || !event.contains("sentence")) {
    return fail(ErrorCode::kInvalid,
                "no event; expected an object with \"time\" as 2026-02-03T04:05:06.789Z, \"kind\" "
                "and \"sentence\", as tapasctl events -o json prints them");
  }
  count(journal, *wall_ns);
  if (matters(kind)) {
    journal.lines.push_back({*wall_ns, text_at(event, "job"), std::move(kind),
                             text_at(event, "node"), text_at(event, "sentence"),
                             object_at(event, "evidence")});
  }
  return {};
}

Result<Journal> read_document(std::string_view name, const json::Value& document) {
  Journal journal;
  for (const json::Value& event : array_at(document, "events")) {
    if (auto ok = add(journal, event); !ok) {
      return fail(ok.error().code, "{}: events[{}]: {}", name, journal.events, ok.error().message);
    }
  }
  return journal;
}

}  // namespace

Result<Journal> read_events(std::string_view name, std::string_view text,
                            const ReplayProgress& progress) {
  Journal journal;
  Lines lines(text, progress);
  while (lines.next()) {
    if (lines.blank()) {
      continue;
    }
    auto event = json::parse(lines.line());
    if (journal.events == 0 && (!event || !text_at(*event, "schema").empty())) {
      event = json::parse(text);
      if (event) {
        return read_document(name, *event);
      }
    }
    if (!event) {
      return fail(ErrorCode::kInvalid, "{}:{}: {}", name, lines.number(), event.error().message);
    }
    if (auto ok = add(journal, *event); !ok) {
      return fail(ok.error().code, "{}:{}: {}", name, lines.number(), ok.error().message);
    }
  }
  return journal;
}

Result<Journal> read_store(const std::string& path, const ReplayProgress& progress) {
  Journal journal;
  std::optional<Error> error;
  const auto ok = daemon::read_journal(path, [&](const daemon::StoredEvent& event, double done) {
    count(journal, event.wall_ns);
    if (journal.events % kProgressEvents == 0) {
      progress(done);
    }
    if (!matters(event.kind) || error) {
      return;
    }
    auto evidence = json::parse(event.evidence);
    if (!evidence) {
      error = Error{ErrorCode::kInvalid, fmt::format("{}: evidence of event {}: {}", path, event.id,
                                                     evidence.error().message)};
      return;
    }
    journal.lines.push_back(
        {event.wall_ns, event.job, event.kind, event.node, event.sentence, std::move(*evidence)});
  });
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  return error ? Result<Journal>(tl::unexpected(*error)) : std::move(journal);
}

}  // namespace tapas::ctl
