#include "ctl/replay_links.h"

#include "ctl/table.h"
#include "daemon/core/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tapas::ctl {
namespace {

bool same(const daemon::LinkFault& a, const daemon::LinkFault& b) {
  return std::tie(a.part, a.from, a.to) == std::tie(b.part, b.from, b.to);
}

}  // namespace

std::vector<LinkEpisode> replay_links(const LinkTrace& trace, const ReplayProgress& progress) {
  solver::Cluster cluster;
  cluster.device_types.emplace_back();
  cluster.node_types.emplace_back().devices = 1;
  for (const std::string& name : trace.nodes) {
    cluster.nodes.emplace_back().name = name;
  }
  daemon::LinkWatch watch(cluster);
  std::vector<LinkEpisode> episodes;
  for (std::size_t i = 0; i < trace.rows.size(); ++i) {
    const LinkTrace::Row& row = trace.rows[i];
    watch.observe(NodeId(row.from), NodeId(row.to), row.seconds_per_byte, {row.step, 0});
    if (watch.verdict_due()) {
      for (const daemon::LinkFault& fault : watch.take_faults()) {
        episodes.push_back({row.step, fault, daemon::to_text(fault, cluster), std::nullopt});
      }
    }
    for (const daemon::LinkFault& back : watch.take_recovered()) {
      for (LinkEpisode& episode : episodes) {
        if (!episode.end_step && same(episode.fault, back)) {
          episode.end_step = row.step;
        }
      }
    }
    if (i % 1024 == 0) {
      progress(static_cast<double>(i) / static_cast<double>(trace.rows.size()));
    }
  }
  return episodes;
}

std::string links_text(const LinkTrace& trace, const std::vector<LinkEpisode>& episodes) {
  std::string text;
  for (const LinkEpisode& episode : episodes) {
    const daemon::LinkFault& fault = episode.fault;
    text += fmt::format(
        "step {}: {} since step {}\n  {:.2f} GB/s before, {:.2f} since, on {}; {:.1f} standard "
        "errors beyond what is usual; {}\n  advice: {}\n",
        episode.verdict_step, episode.sentence, fault.since.step, 1e-9 / fault.before_s,
        1e-9 / fault.after_s, format_count(fault.links, "link"), fault.confidence,
        episode.end_step ? fmt::format("over at step {}", *episode.end_step)
                         : std::string("still so at the end"),
        daemon::advice(daemon::Cause::kLink));
  }
  return text + fmt::format("{}, {}: {}\n", format_count(trace.steps, "step"),
                            format_count(trace.nodes.size(), "node"),
                            episodes.empty() ? "nothing to report"
                                             : format_count(episodes.size(), "episode"));
}

json::Value links_json(const LinkTrace& trace, const std::vector<LinkEpisode>& episodes) {
  json::Value out = {{"schema", "tapas.replay/1"},
                     {"steps", trace.steps},
                     {"nodes", trace.nodes.size()},
                     {"episodes", json::Value::array()}};
  for (const LinkEpisode& episode : episodes) {
    const daemon::LinkFault& fault = episode.fault;
    json::Value entry = {{"cause", daemon::to_string(daemon::Cause::kLink)},
                         {"part", daemon::to_string(fault.part)},
                         {"from", trace.nodes[fault.from.value()]},
                         {"to", trace.nodes[fault.to.value()]},
                         {"since_step", fault.since.step},
                         {"verdict_step", episode.verdict_step},
                         {"end_step", nullptr},
                         {"slowdown", fault.slowdown},
                         {"seconds_per_byte_before", fault.before_s},
                         {"seconds_per_byte_after", fault.after_s},
                         {"confidence_sigma", fault.confidence},
                         {"links", fault.links},
                         {"advice", daemon::advice(daemon::Cause::kLink)},
                         {"sentence", episode.sentence}};
    if (episode.end_step) {
      entry["end_step"] = *episode.end_step;
    }
    out["episodes"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace tapas::ctl
