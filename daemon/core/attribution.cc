#include "daemon/core/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace tapas::daemon {
namespace {

// Of a node's working devices, this share slow alike makes it the host.
constexpr double kHostShare = 0.75;
// More than this share of all ranks slow against their equals is no outlier any more.
constexpr double kTooMany = 0.5;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::map<NodeId, std::vector<RankDeviation>> by_node(const Findings& findings,
                                                     const solver::Cluster& cluster) {
  std::map<NodeId, std::vector<RankDeviation>> nodes;
  for (const RankDeviation& rank : findings.ranks) {
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
  }
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

std::string devices_of(const Culprit& culprit, const solver::Cluster& cluster) {
  if (culprit.host) {
    return fmt::format("all {} devices", culprit.ranks.size());
  }
  std::vector<std::uint32_t> devices;
  for (const RankId rank : culprit.ranks) {
    devices.push_back(cluster.device_of(rank));
  }
  return fmt::format("device {}", fmt::join(devices, ", "));
}

void take(Verdict& verdict, const Deviation& from) {
  verdict.slowdown = from.slowdown;
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

Verdict job_wide(const Findings& findings) {
  Verdict out;
  out.cause = Cause::kJobWide;
  take(out, *findings.job);
  const std::string head = fmt::format("the step takes {:.2f} times as long since step {}",
                                       out.slowdown, out.since.step);
  if (!findings.compute_known) {
    out.cause = Cause::kUnknown;
    out.sentence = head +
                   ", but the ranks report wall times only: the culprit is unknown; report "
                   "forward and backward times to find it";
  } else if (findings.reporting * 4 < findings.expected * 3) {
    out.cause = Cause::kUnknown;
    out.sentence = head + fmt::format(", but only {} of {} ranks report: the culprit is unknown",
                                      findings.reporting, findings.expected);
  } else if (findings.compute_ratio > 1.0 + (out.slowdown - 1.0) / 2) {
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

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::kNothing:
      return "nothing";
    case Cause::kDevice:
      return "device";
    case Cause::kHost:
      return "host";
    case Cause::kHeavyStage:
      return "heavy_stage";
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
  for (const auto& [node, slow] : by_node(findings, cluster)) {
    const bool heavy_only = std::all_of(slow.begin(), slow.end(), [&](const RankDeviation& rank) {
      return heavy.contains(roles.of(rank.rank).stage);
    });
    if (heavy_only) {
      continue;
    }
    out.culprits.push_back(culprit(node, slow, roles, cluster));
    for (const RankDeviation& rank : slow) {
      take_earliest(out, rank);
      out.compared = std::max(out.compared, rank.compared);
    }
  }
  if (!out.culprits.empty()) {
    std::stable_sort(out.culprits.begin(), out.culprits.end(),
                     [](const Culprit& a, const Culprit& b) { return a.slowdown > b.slowdown; });
    const Culprit& worst = out.culprits.front();
    out.cause = worst.host ? Cause::kHost : Cause::kDevice;
    out.slowdown = worst.slowdown;
    out.sentence = fmt::format(
        "node {} ({}) computes {:.2f} times as long as its {} equals since step {}{}", worst.node,
        devices_of(worst, cluster), worst.slowdown, out.compared, out.since.step,
        out.culprits.size() > 1 ? fmt::format("; {} more node(s) are slow", out.culprits.size() - 1)
                                : "; the other ranks only wait for it");
    return out;
  }
  if (!heavy.empty()) {
    out.cause = Cause::kHeavyStage;
    out.stages.assign(heavy.begin(), heavy.end());
    for (const RankDeviation& rank : findings.ranks) {
      take_earliest(out, rank);
      out.slowdown = std::max(out.slowdown, rank.slowdown);
    }
    for (const StageDeviation& stage : findings.stages) {
      take_earliest(out, stage);
      out.slowdown = std::max(out.slowdown, stage.slowdown);
    }
    out.sentence = fmt::format(
        "stage {} computes {:.2f} times as long in every replica since step {}: the work grew, no "
        "node is to blame",
        out.stages.front(), out.slowdown, out.since.step);
    return out;
  }
  if (findings.job) {
    return job_wide(findings);
  }
  return out;
}

}  // namespace tapas::daemon
