#include "agent/ras/report.h"

#include "agent/ras/gather.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace tapas::agent::ras {

namespace {

/// The same for the same trouble without progress; what the furthest rank launched may change.
std::string identity(const Finding& finding) {
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}", to_string(finding.kind), finding.host, finding.pid,
                  finding.count, finding.operation, finding.launched, finding.detail);
  for (const Member& member : finding.members) {
    text += fmt::format("|{} {}", member.communicator, member.rank.value_or(-1));
  }
  return text;
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kDead:
      return "dead";
    case Kind::kUnresponsive:
      return "unresponsive";
    case Kind::kMissing:
      return "missing";
    case Kind::kLagging:
      return "lagging";
    case Kind::kFailed:
      return "failed";
    case Kind::kStatus:
      return "status";
    case Kind::kUnexplained:
      return "unexplained";
  }
  return "";
}

Result<Report> parse_report(std::string_view text) {
  if (text.size() > kMaxReportBytes) {
    return fail(ErrorCode::kInvalid, "a report of {} bytes; at most {} are read", text.size(),
                kMaxReportBytes);
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return fail(ErrorCode::kInvalid, "an empty report");
  }
  return text[first] == '{' ? parse_json(text) : parse_text(text);
}

bool may_pass(Kind kind) {
  return kind == Kind::kLagging || kind == Kind::kMissing || kind == Kind::kStatus;
}

Report lasting(const Report& first, Report second) {
  std::set<std::string> before;
  for (const Finding& finding : first.findings) {
    before.insert(identity(finding));
  }
  std::erase_if(second.findings, [&](const Finding& finding) {
    return may_pass(finding.kind) && before.count(identity(finding)) == 0;
  });
  return second;
}

}  // namespace tapas::agent::ras
