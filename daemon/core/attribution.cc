#include "daemon/core/attribution.h"

#include "base/median.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace tapas::daemon {
namespace {

// Of a node's working devices, this share slow alike makes it the host.
constexpr double kHostShare = 0.75;
// More than this share of all ranks slow against their equals is no outlier any more.
constexpr double kTooMany = 0.5;

std::map<NodeId, std::vector<RankDeviation>> by_node(const std::vector<RankDeviation>& ranks,
                                                     const solver::Cluster& cluster) {
  std::map<NodeId, std::vector<RankDeviation>> nodes;
  for (const RankDeviation& rank : ranks) {
    nodes[cluster.node_of(rank.rank)].push_back(rank);
  }
  return nodes;
}

std::vector<RankId> working_ranks(NodeId node, const Roles& roles, const solver::Cluster& cluster) {
  std::vector<RankId> ranks;
  for (std::uint32_t device = 0; device < cluster.type_of(node).devices; ++device) {
    const RankId rank = cluster.rank_of(node, device);
    if (roles.of(rank).held) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

Culprit culprit(NodeId node, const std::vector<RankDeviation>& slow, const Roles& roles,
                const solver::Cluster& cluster) {
  Culprit out;
  out.node = cluster.nodes[node.value()].name;
  std::vector<double> slowdowns;
  for (const RankDeviation& rank : slow) {
    slowdowns.push_back(rank.slowdown);
    out.ranks.push_back(rank.rank);
  }
  out.slowdown = median(slowdowns);
  const std::vector<RankId> working = working_ranks(node, roles, cluster);
  if (working.size() > 1 &&
      static_cast<double>(slow.size()) >= kHostShare * static_cast<double>(working.size())) {
    out.host = true;
    out.ranks = working;
    slowdowns.assign(working.size(), out.slowdown);
  }
  out.slowdowns = std::move(slowdowns);
  return out;
}

/// Stages of several nodes in which every working rank is slow.
std::set<std::uint32_t> heavy_stages(const Findings& findings, const Roles& roles) {
  std::vector<std::uint32_t> slow(roles.by_stage().size(), 0);
  for (const RankDeviation& rank : findings.ranks) {
    ++slow[roles.of(rank.rank).stage];
  }
  std::set<std::uint32_t> heavy;
  for (std::uint32_t stage = 0; stage < slow.size(); ++stage) {
    if (roles.nodes_in_stage(stage) > 1 && slow[stage] == roles.by_stage()[stage].size()) {
      heavy.insert(stage);
    }
  }
  for (const StageDeviation& stage : findings.stages) {
    if (slow[stage.stage] == 0) {
      heavy.insert(stage.stage);
    }
  }
  return heavy;
}

std::string who(const Culprit& culprit, const solver::Cluster& cluster) {
  if (cluster.type_of(cluster.node_of(culprit.ranks.front())).devices == 1) {
    return "node " + culprit.node;
  }
  if (culprit.host) {
    return fmt::format("node {} (all {} devices)", culprit.node, culprit.ranks.size());
  }
  std::vector<std::uint32_t> devices;
  for (const RankId rank : culprit.ranks) {
    devices.push_back(cluster.device_of(rank));
  }
  return fmt::format("node {} (device {})", culprit.node, fmt::join(devices, ", "));
}

/// Its numbers speak for the verdict.
void take_levels(Verdict& verdict, const Deviation& from) {
  verdict.slowdown = from.slowdown;
  verdict.before = from.before;
  verdict.after = from.after;
  verdict.confidence = from.confidence;
}
void take(Verdict& verdict, const Deviation& from) {
  take_levels(verdict, from);
  verdict.since = from.since;
  verdict.steps = from.steps;
}

/// The earliest of them: what the job's loss is counted from.
void take_earliest(Verdict& verdict, const Deviation& from) {
  if (verdict.steps == 0 || from.since.step < verdict.since.step) {
    verdict.since = from.since;
    verdict.steps = from.steps;
  }
}

/// The others wait for these, so they are the late ones' victims, as their devices are no one's.
Verdict input(const Findings& findings, const Roles& roles, const solver::Cluster& cluster) {
  Verdict out;
  out.cause = Cause::kInput;
  out.in_seconds = true;
  for (const auto& [node, late] : by_node(findings.late, cluster)) {
    Culprit& whose = out.late.emplace_back(culprit(node, late, roles, cluster));
    whose.host = whose.host && whose.ranks.size() == late.size();
    whose.ranks.clear();
    std::transform(late.begin(), late.end(), std::back_inserter(whose.ranks),
                   [](const RankDeviation& rank) { return rank.rank; });
  }
  std::stable_sort(out.late.begin(), out.late.end(),
                   [](const Culprit& a, const Culprit& b) { return a.slowdown > b.slowdown; });
  for (const RankDeviation& rank : findings.late) {
    take_earliest(out, rank);
    if (rank.slowdown > out.slowdown) {
      take_levels(out, rank);
      out.equals = roles.by_stage()[roles.of(rank.rank).stage];
      std::erase(out.equals, rank.rank);
    }
  }
  out.sentence = fmt::format(
      "{} waits {:.3f} s for its next batch in each step since step {}, {:.3f} s before: its data "
      "loader or storage is late; {}moving layers would not help",
      who(out.late.front(), cluster), out.after, out.since.step, out.before,
      out.late.size() > 1 ? fmt::format("so is that of {} more node(s); ", out.late.size() - 1)
                          : "the other ranks only wait for it, ");
  return out;
}

Verdict job_wide(const Findings& findings) {
  Verdict out;
  out.cause = Cause::kJobWide;
  take(out, *findings.job);
  out.in_seconds = true;
  const std::string head = fmt::format("the step takes {:.2f} times as long since step {}",
                                       out.slowdown, out.since.step);
  const double most_of_it = 1.0 + (out.slowdown - 1.0) / 2;
  if (findings.input_ratio > most_of_it) {
    out.sentence = head +
                   ": what grew is the wait for input, of no few ranks alone; look at data loaders "
                   "and storage, moving layers would not help";
  } else if (!findings.compute_known) {
    out.cause = Cause::kUnknown;
    out.sentence = head +
                   ", but the ranks report wall times only: the culprit is unknown; report "
                   "forward and backward times to find it";
  } else if (findings.reporting * 4 < findings.expected * 3) {
    out.cause = Cause::kUnknown;
    out.sentence = head + fmt::format(", but only {} of {} ranks report: the culprit is unknown",
                                      findings.reporting, findings.expected);
  } else if (findings.work_ratio > most_of_it) {
    out.cause = Cause::kData;
    out.sentence = head + fmt::format(
                              ": the largest batch of a step has work for {:.2f} times as long; "
                              "per token nobody computes slower, no node is to blame",
                              findings.work_ratio);
  } else if (findings.compute_ratio > most_of_it) {
    out.sentence = head + fmt::format(
                              ": every rank computes {:.2f} times as long, so no node is to "
                              "blame (power, clocks or the work itself)",
                              findings.compute_ratio);
  } else {
    out.sentence = head +
                   ", but no rank's compute stands out: look at storage, network, input and "
                   "software; moving layers would not help";
  }
  return out;
}

}  // namespace

std::string_view advice(Cause cause) {
  switch (cause) {
    case Cause::kDevice:
    case Cause::kHost:
      return "move its load or swap the node";
    case Cause::kLink:
      return "put stages there that exchange little; check NIC, cable and switch port";
    case Cause::kHeavyStage:
      return "move layers out of the stage; swap no node";
    case Cause::kInput:
      return "move nothing; look at its data loader, host CPU and storage";
    case Cause::kData:
      return "move nothing; even out the batches, or plan garbage collection";
    case Cause::kJobWide:
      return "move nothing; look at storage, network, power, input and software";
    case Cause::kUnknown:
      return "move nothing; the records do not tell who is slow";
    case Cause::kNothing:
      break;
  }
  return "";
}

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::kNothing:
      return "nothing";
    case Cause::kDevice:
      return "device";
    case Cause::kHost:
      return "host";
    case Cause::kLink:
      return "link";
    case Cause::kHeavyStage:
      return "heavy_stage";
    case Cause::kInput:
      return "input";
    case Cause::kData:
      return "data";
    case Cause::kJobWide:
      return "job_wide";
    case Cause::kUnknown:
      break;
  }
  return "unknown";
}

Verdict attribute(const Findings& findings, const Roles& roles, const solver::Cluster& cluster) {
  Verdict out;
  const std::set<std::uint32_t> heavy = heavy_stages(findings, roles);
  if (static_cast<double>(findings.ranks.size()) > kTooMany * roles.held() && heavy.empty()) {
    out.cause = Cause::kUnknown;
    take(out, findings.ranks.front());
    out.sentence = fmt::format(
        "{} of {} ranks compute slower than their equals did: too many for a "
        "verdict about nodes",
        findings.ranks.size(), roles.held());
    return out;
  }
  for (const auto& [node, slow] : by_node(findings.ranks, cluster)) {
    const bool heavy_only = std::all_of(slow.begin(), slow.end(), [&](const RankDeviation& rank) {
      return heavy.contains(roles.of(rank.rank).stage);
    });
    if (heavy_only) {
      continue;
    }
    out.culprits.push_back(culprit(node, slow, roles, cluster));
    for (const RankDeviation& rank : slow) {
      take_earliest(out, rank);
    }
  }
  if (!out.culprits.empty()) {
    double share = 1;
    std::stable_sort(out.culprits.begin(), out.culprits.end(),
                     [](const Culprit& a, const Culprit& b) { return a.slowdown > b.slowdown; });
    const Culprit& worst = out.culprits.front();
    out.cause = worst.host ? Cause::kHost : Cause::kDevice;
    for (const RankDeviation& rank : findings.ranks) {
      if (cluster.nodes[cluster.node_of(rank.rank).value()].name == worst.node &&
          rank.slowdown > out.slowdown) {
        take_levels(out, rank);
        share = rank.share;
        out.equals = roles.equals_of(rank.rank);
      }
    }
    out.slowdown = worst.slowdown;
    out.sentence = fmt::format(
        "{} {} as long as its {} equals since step {}{}", who(worst, cluster),
        share < 1 ? fmt::format("flaps: in {:.0f} % of its steps it computes {:.2f} times",
                                100 * share, out.after / out.before)
                  : fmt::format("computes {:.2f} times", worst.slowdown),
        out.equals.size(), out.since.step,
        out.culprits.size() > 1 ? fmt::format("; {} more node(s) are slow", out.culprits.size() - 1)
                                : "; the other ranks only wait for it");
    return out;
  }
  if (!heavy.empty()) {
    out.cause = Cause::kHeavyStage;
    out.stages.assign(heavy.begin(), heavy.end());
    for (const RankDeviation& rank : findings.ranks) {
      take_earliest(out, rank);
      if (rank.slowdown > out.slowdown) {
        take_levels(out, rank);
      }
    }
    for (const StageDeviation& stage : findings.stages) {
      take_earliest(out, stage);
      if (stage.slowdown > out.slowdown) {
        take_levels(out, stage);
      }
    }
    out.sentence = fmt::format(
        "stage {} computes {:.2f} times as long as it should in every replica since step {}: the "
        "work is heavy, no node is to blame; moving layers out of it would help",
        out.stages.front(), out.slowdown, out.since.step);
    return out;
  }
  if (!findings.late.empty()) {
    return input(findings, roles, cluster);
  }
  if (findings.rotating) {
    out.cause = Cause::kData;
    take(out, *findings.rotating);
    out.sentence = fmt::format(
        "in each step since {} another rank computes {:.2f} times as long as it usually does: "
        "uneven batches or garbage collection, no node is to blame",
        out.since.step, out.after);
    return out;
  }
  if (findings.job) {
    return job_wide(findings);
  }
  return out;
}

void take_note(Watch& watch, const Verdict& verdict) {
  for (const Culprit& culprit : verdict.culprits) {
    for (std::size_t i = 0; i < culprit.ranks.size(); ++i) {
      watch.blame(culprit.ranks[i], culprit.slowdowns[i]);
    }
  }
  for (const Culprit& late : verdict.late) {
    for (const RankId rank : late.ranks) {
      watch.accept_late(rank);
    }
  }
  if (verdict.cause == Cause::kData && !verdict.in_seconds) {
    watch.accept_rotating();
  } else if (verdict.late.empty() && verdict.culprits.empty()) {
    watch.accept(verdict.stages);
  }
}

}  // namespace tapas::daemon
