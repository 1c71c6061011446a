#include "ctl/replay_recording.h"

#include "base/wall_time.h"
#include "ctl/events_text.h"
#include "ctl/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

namespace tapas::ctl {
namespace {

constexpr std::size_t kMaxShown = 2000;
constexpr std::uint64_t kProgressEvents = 1024;

std::string_view word(daemon::SwitchOrder order) {
  switch (order) {
    case daemon::SwitchOrder::kPrepare:
      return "PREPARE";
    case daemon::SwitchOrder::kArm:
      return "ARM";
    case daemon::SwitchOrder::kTransfer:
      return "TRANSFER";
    case daemon::SwitchOrder::kCommit:
      return "COMMIT";
    case daemon::SwitchOrder::kAbort:
      return "ABORT";
  }
  return "?";
}

/// Journal lines as they are; of orders one line for all nodes that get the same.
void add_lines(const std::vector<daemon::Action>& actions, std::int64_t wall_ns, bool same,
               std::vector<ReplayedLine>& out) {
  std::map<std::tuple<std::string, daemon::SwitchOrder, Epoch>, std::uint64_t> orders;
  for (const daemon::Action& action : actions) {
    if (const auto* write = std::get_if<daemon::StoreWrite>(&action)) {
      for (const daemon::StoreRow& row : write->rows) {
        if (const auto* event = std::get_if<daemon::EventRow>(&row)) {
          out.push_back({wall_ns, event->job, event->kind, event->node, event->sentence, same});
        }
      }
    } else if (const auto* send = std::get_if<daemon::SendToAgent>(&action)) {
      if (const auto* order = std::get_if<daemon::SwitchMessage>(&send->message)) {
        ++orders[{order->job, order->order, order->to}];
      }
    }
  }
  for (const auto& [order, nodes] : orders) {
    const auto& [job, what, epoch] = order;
    out.push_back({wall_ns, job, "order", "",
                   fmt::format("{} epoch {} to {}", word(what), epoch, format_count(nodes, "node")),
                   same});
  }
}

std::string shown(const json::Value& action) {
  if (action.is_null()) {
    return "nothing";
  }
  std::string text = printable(json::dump(action));
  if (text.size() > kMaxShown) {
    text = text.substr(0, kMaxShown) + " ... (-o json has it all)";
  }
  return text;
}

std::string ending(const daemon::recording::Replayed& outcome) {
  if (outcome.end) {
    return "it ends because " + printable(*outcome.end);
  }
  return outcome.cut ? "it stops in the middle of its last line, which does not count: tapasd was "
                       "killed, still runs, or the disk refused"
                     : "no line says why it ends: tapasd was killed or still runs";
}

json::Value time(std::int64_t wall_ns) { return format_wall_time(wall_ns); }

}  // namespace

Result<ReplayedRecording> replay_recording(const std::string& path,
                                           const ReplayProgress& progress) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(ErrorCode::kIo, "cannot read {}: check that it is a file that you may read", path);
  }
  std::error_code ignored;
  const auto size = static_cast<double>(std::filesystem::file_size(path, ignored));
  ReplayedRecording out;
  std::uint64_t events = 0;
  auto outcome =
      daemon::recording::replay(file, [&](const daemon::recording::Step& step,
                                          const std::vector<daemon::Action>& actions, bool same) {
        add_lines(actions, step.now.wall_ns, same, out.lines);
        if (++events % kProgressEvents == 0) {
          progress(std::min(1.0, static_cast<double>(file.tellg()) / size));
        }
      });
  if (!outcome) {
    return fail(outcome.error().code, "{}: {}", path, printable(outcome.error().message));
  }
  out.outcome = *std::move(outcome);
  return out;
}

std::string recording_text(const ReplayedRecording& replayed) {
  const daemon::recording::Replayed& outcome = replayed.outcome;
  std::string text;
  for (const ReplayedLine& line : replayed.lines) {
    text += fmt::format("{} {}  {:<18}  {}\n", line.same ? " " : "!",
                        short_time(format_wall_time(line.wall_ns)), printable(line.kind),
                        printable(line.sentence));
  }
  if (outcome.first) {
    text += fmt::format(
        "first difference in line {}, {}:\n  the daemon did    {}\n"
        "  this core does    {}\n",
        outcome.first->line, format_wall_time(outcome.first->wall_ns),
        shown(outcome.first->expected), shown(outcome.first->seen));
  }
  text += fmt::format("{}, recorded by tapasd {}", format_count(outcome.events, "event"),
                      printable(outcome.version));
  if (outcome.events > 0) {
    text += fmt::format(" from {} to {}", format_wall_time(outcome.first_ns),
                        format_wall_time(outcome.last_ns));
  }
  text += outcome.first
              ? fmt::format(": after {} of them this core does something else{}", outcome.differing,
                            outcome.version == TAPAS_VERSION ? ""
                                                             : "; it is of version " TAPAS_VERSION
                                                               ", which may be why")
              : ": all decisions, verdicts and orders are the same";
  return text + "; " + ending(outcome) + "\n";
}

json::Value recording_json(const ReplayedRecording& replayed) {
  const daemon::recording::Replayed& outcome = replayed.outcome;
  const bool any = outcome.events > 0;
  json::Value out = {{"schema", "tapas.replay/1"},
                     {"version", outcome.version},
                     {"events", outcome.events},
                     {"from_time", any ? time(outcome.first_ns) : nullptr},
                     {"to_time", any ? time(outcome.last_ns) : nullptr},
                     {"same", !outcome.first},
                     {"differing_events", outcome.differing},
                     {"first_difference", nullptr},
                     {"end", outcome.end ? json::Value(*outcome.end) : json::Value(nullptr)},
                     {"cut", outcome.cut},
                     {"lines", json::Value::array()}};
  if (outcome.first) {
    out["first_difference"] = {{"line", outcome.first->line},
                               {"time", time(outcome.first->wall_ns)},
                               {"expected", outcome.first->expected},
                               {"seen", outcome.first->seen}};
  }
  for (const ReplayedLine& line : replayed.lines) {
    out["lines"].push_back({{"time", time(line.wall_ns)},
                            {"job", line.job},
                            {"kind", line.kind},
                            {"node", line.node},
                            {"sentence", line.sentence},
                            {"same", line.same}});
  }
  return out;
}

}  // namespace tapas::ctl
