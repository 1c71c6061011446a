#include "ctl/replay_inspector.h"

#include "ctl/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tapas::ctl {
namespace {

/// Late, but perhaps not by its own fault.
void withhold_blame(daemon::Verdict& verdict, const Communicator& communicator) {
  const auto waits_elsewhere = [&](const daemon::Culprit& culprit) {
    return std::any_of(culprit.ranks.begin(), culprit.ranks.end(),
                       [&](RankId rank) { return communicator.elsewhere[rank.value()]; });
  };
  if (!std::any_of(verdict.culprits.begin(), verdict.culprits.end(), waits_elsewhere)) {
    return;
  }
  verdict.cause = daemon::Cause::kUnknown;
  verdict.sentence = fmt::format(
      "{} of communicator {} comes last by {:.0f} % of a step, but may itself have waited in "
      "another communicator",
      verdict.culprits.front().node, printable(communicator.id), 100 * (verdict.slowdown - 1));
  verdict.culprits.clear();
}

}  // namespace

InspectorEpisodes replay_inspector(const std::vector<Communicator>& communicators,
                                   const ReplayProgress& progress) {
  InspectorEpisodes out;
  for (const Communicator& communicator : communicators) {
    const auto before = static_cast<double>(out.size());
    const auto share = [&](double done) {
      progress((before + done) / static_cast<double>(communicators.size()));
    };
    std::vector<Episode> episodes = replay(communicator.trace, {}, share);
    for (Episode& episode : episodes) {
      withhold_blame(episode.verdict, communicator);
    }
    out.push_back(std::move(episodes));
  }
  return out;
}

std::string inspector_text(const std::vector<Communicator>& communicators,
                           const InspectorEpisodes& episodes) {
  std::string text;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    const Communicator& communicator = communicators[i];
    text += fmt::format(
        "communicator {}, {} of {}, {} and about {} a step\n{}", printable(communicator.id),
        communicator.trace.ranks.size(), format_count(communicator.size, "rank"),
        format_count(communicator.per_step, "collective"), format_seconds(communicator.step_s),
        replay_text(communicator.trace, episodes[i]));
  }
  return text;
}

json::Value inspector_json(const std::vector<Communicator>& communicators,
                           const InspectorEpisodes& episodes) {
  json::Value out = {{"schema", "tapas.replay/1"},
                     {"communicators", json::Value::array()},
                     {"episodes", json::Value::array()}};
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    const Communicator& communicator = communicators[i];
    json::Value one = replay_json(communicator.trace, episodes[i]);
    out["communicators"].push_back({{"id", communicator.id},
                                    {"size", communicator.size},
                                    {"ranks", one["ranks"]},
                                    {"steps", one["steps"]},
                                    {"collectives_per_step", communicator.per_step},
                                    {"step_s", communicator.step_s}});
    for (json::Value& episode : one["episodes"]) {
      episode["communicator"] = communicator.id;
      out["episodes"].push_back(std::move(episode));
    }
  }
  return out;
}

}  // namespace tapas::ctl
