#include "ctl/replay_journal.h"

#include "base/wall_time.h"
#include "ctl/fields.h"
#include "ctl/table.h"
#include "daemon/core/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace tapas::ctl {
namespace {

using daemon::Cause;

Cause cause_of(const JournalLine& line) {
  const std::string text = text_at(line.evidence, "cause");
  for (const Cause cause : {Cause::kDevice, Cause::kHost, Cause::kLink, Cause::kHeavyStage,
                            Cause::kInput, Cause::kData, Cause::kJobWide}) {
    if (text == daemon::to_string(cause)) {
      return cause;
    }
  }
  return Cause::kUnknown;
}

bool of_node(Cause cause) { return cause == Cause::kDevice || cause == Cause::kHost; }

/// "3, 7, ..."
std::vector<std::uint64_t> numbers_in(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  for (const char* at = text.data(); at < text.data() + text.size(); ++at) {
    std::uint64_t number = 0;
    if (const auto [end, error] = std::from_chars(at, text.data() + text.size(), number);
        error == std::errc{}) {
      numbers.push_back(number);
      at = end;
    }
  }
  return numbers;
}

bool same(const json::Value& a, const json::Value& b, std::string_view key) {
  return text_at(a, key) == text_at(b, key);
}

/// What the line says ends what the verdict said.
bool ends(const JournalLine& line, const JournalLine& verdict) {
  const Cause cause = cause_of(verdict);
  if (line.job != verdict.job) {
    return false;
  }
  if (line.kind == "session") {  // Devices and links are remembered, levels of the job are not.
    return !of_node(cause) && cause != Cause::kLink;
  }
  switch (cause_of(line)) {
    case Cause::kLink:
      return cause == Cause::kLink && same(line.evidence, verdict.evidence, "part") &&
             same(line.evidence, verdict.evidence, "from") &&
             same(line.evidence, verdict.evidence, "to");
    case Cause::kHeavyStage: {
      const auto stages = numbers_in(text_at(verdict.evidence, "stages"));
      const auto over = numbers_in(text_at(line.evidence, "stages"));
      return cause == Cause::kHeavyStage && !over.empty() &&
             std::count(stages.begin(), stages.end(), over.front()) > 0;
    }
    case Cause::kJobWide:
      return verdict.evidence.contains("level_after_s") && cause != Cause::kInput;
    case Cause::kInput:
      return cause == Cause::kInput && line.node == verdict.node;
    case Cause::kData:
      return cause == Cause::kData;
    default:
      return of_node(cause) && !line.node.empty() && line.node == verdict.node;
  }
}

std::optional<std::int64_t> since_of(const JournalLine& verdict) {
  constexpr double kMostSeconds = 1e9;
  const double detect_s = number_at(verdict.evidence, "detect_s");
  if (!(detect_s >= 0 && detect_s <= kMostSeconds)) {
    return std::nullopt;
  }
  return verdict.wall_ns - static_cast<std::int64_t>(detect_s * 1e9);
}

std::string levels_text(const json::Value& evidence) {
  const auto known = [&](std::string_view key) { return std::isfinite(number_at(evidence, key)); };
  std::string text;
  if (known("level_before_s")) {
    text =
        fmt::format("{} before, {} since; ", format_seconds(number_at(evidence, "level_before_s")),
                    format_seconds(number_at(evidence, "level_after_s")));
  } else if (known("level_before")) {
    text = fmt::format("{:.3f} before, {:.3f} since; ", number_at(evidence, "level_before"),
                       number_at(evidence, "level_after"));
  } else if (known("bandwidth_before_gbps")) {
    text = fmt::format("{:.1f} Gbit/s before, {:.1f} since; ",
                       number_at(evidence, "bandwidth_before_gbps"),
                       number_at(evidence, "bandwidth_after_gbps"));
  }
  if (known("confidence_sigma")) {
    text += fmt::format("{:.1f} standard errors beyond what is usual; ",
                        number_at(evidence, "confidence_sigma"));
  }
  return text;
}

}  // namespace

std::vector<ToldEpisode> episodes_of(const Journal& journal) {
  std::vector<ToldEpisode> episodes;
  std::vector<std::size_t> open;
  for (const JournalLine& line : journal.lines) {
    if (line.kind != "verdict") {
      std::erase_if(open, [&](std::size_t index) {
        const bool over = ends(line, episodes[index].verdict);
        if (over) {
          episodes[index].end = line;
        }
        return over;
      });
    } else if (line.evidence.contains("cause")) {
      open.push_back(episodes.size());
      episodes.push_back({line, since_of(line), {}, std::nullopt});
    } else {
      for (const std::size_t index : open) {
        const JournalLine& verdict = episodes[index].verdict;
        if (verdict.job == line.job && !line.node.empty() && verdict.node == line.node) {
          episodes[index].later.push_back(line);
        }
      }
    }
  }
  return episodes;
}

std::string told_text(const Journal& journal, const std::vector<ToldEpisode>& episodes) {
  std::string text;
  for (const ToldEpisode& episode : episodes) {
    const JournalLine& verdict = episode.verdict;
    text += fmt::format("{} {}: {}\n", format_wall_time(verdict.wall_ns), printable(verdict.job),
                        printable(verdict.sentence));
    if (episode.since_ns) {
      text += fmt::format("  since {}", format_wall_time(*episode.since_ns));
      if (verdict.evidence.contains("since_step")) {
        text += fmt::format(", step {}", count_at(verdict.evidence, "since_step"));
      }
      text += "\n";
    }
    text += fmt::format("  {}{}\n", levels_text(verdict.evidence),
                        episode.end ? "over at " + format_wall_time(episode.end->wall_ns)
                                    : "no end in the journal");
    if (const std::string equals = text_at(verdict.evidence, "compared_with"); !equals.empty()) {
      text += fmt::format("  compared with ranks {}\n", printable(equals));
    }
    for (const JournalLine& line : episode.later) {
      text += fmt::format("  {}: {}\n", format_wall_time(line.wall_ns), printable(line.sentence));
    }
    if (episode.end) {
      text += fmt::format("  {}: {}\n", format_wall_time(episode.end->wall_ns),
                          printable(episode.end->sentence));
    }
    text += fmt::format("  advice: {}\n", daemon::advice(cause_of(verdict)));
  }
  if (journal.events == 0) {
    return "the journal is empty\n";
  }
  return text + fmt::format(
                    "{} from {} to {}: {}, as the daemon told; the journal holds no steps to "
                    "judge anew\n",
                    format_count(journal.events, "event"), format_wall_time(journal.first_ns),
                    format_wall_time(journal.last_ns), format_count(episodes.size(), "episode"));
}

json::Value told_json(const Journal& journal, const std::vector<ToldEpisode>& episodes) {
  constexpr std::array kNumbers = {"since_step",
                                   "slowdown",
                                   "level_before",
                                   "level_after",
                                   "level_before_s",
                                   "level_after_s",
                                   "confidence_sigma",
                                   "part",
                                   "from",
                                   "to",
                                   "links_compared",
                                   "bandwidth_before_gbps",
                                   "bandwidth_after_gbps"};
  const auto time = [](std::optional<std::int64_t> wall_ns) {
    return wall_ns ? json::Value(format_wall_time(*wall_ns)) : json::Value(nullptr);
  };
  const bool any = journal.events > 0;
  json::Value out = {{"schema", "tapas.replay/1"},
                     {"events", journal.events},
                     {"from_time", any ? time(journal.first_ns) : nullptr},
                     {"to_time", any ? time(journal.last_ns) : nullptr},
                     {"episodes", json::Value::array()}};
  for (const ToldEpisode& episode : episodes) {
    const JournalLine& verdict = episode.verdict;
    json::Value entry = {{"job", verdict.job},
                         {"cause", daemon::to_string(cause_of(verdict))},
                         {"since_time", time(episode.since_ns)},
                         {"verdict_time", time(verdict.wall_ns)},
                         {"end_time", nullptr},
                         {"node", verdict.node},
                         {"culprit_ranks", numbers_in(text_at(verdict.evidence, "ranks"))},
                         {"compared_ranks", numbers_in(text_at(verdict.evidence, "compared_with"))},
                         {"stages", numbers_in(text_at(verdict.evidence, "stages"))}};
    for (const char* key : kNumbers) {
      if (verdict.evidence.contains(key)) {
        entry[key] = verdict.evidence[key];
      }
    }
    entry["later"] = json::Value::array();
    for (const JournalLine& line : episode.later) {
      entry["later"].push_back({{"time", time(line.wall_ns)}, {"sentence", line.sentence}});
    }
    if (episode.end) {
      entry["end_time"] = time(episode.end->wall_ns);
      entry["end_sentence"] = episode.end->sentence;
    }
    entry["advice"] = daemon::advice(cause_of(verdict));
    entry["sentence"] = verdict.sentence;
    out["episodes"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace tapas::ctl
