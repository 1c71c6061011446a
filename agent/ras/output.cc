#include "agent/ras/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tapas::agent::ras {

namespace {

constexpr std::size_t kMembersShown = 3;

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : (what.back() == 's' ? "es" : "s"));
}

std::string name_of(const Member& member) {
  if (!member.rank) {
    return "communicator " + member.communicator;
  }
  return fmt::format("rank {} of communicator {}", *member.rank, member.communicator);
}

std::string subject(const Finding& finding) {
  const bool named = !finding.host.empty() ||
                     (finding.members.size() == 1 && finding.members.front().rank.has_value());
  if (!named) {
    return fmt::format("{}{}, which NCCL does not name,",
                       counted(finding.count, finding.members.empty() ? "process" : "rank"),
                       finding.members.empty() ? "" : " of " + name_of(finding.members.front()));
  }
  std::vector<std::string> about;
  if (!finding.gpu.empty()) {
    about.push_back("GPU " + finding.gpu);
  }
  const std::size_t shown = std::min(finding.members.size(), kMembersShown);
  for (std::size_t i = 0; i < shown; ++i) {
    about.push_back(name_of(finding.members[i]));
  }
  if (finding.members.size() > shown) {
    about.push_back(fmt::format("{} more", finding.members.size() - shown));
  }
  if (finding.host.empty()) {
    return "R" + name_of(finding.members.front()).substr(1);
  }
  return fmt::format("Process {} on {} ({})", finding.pid, finding.host, fmt::join(about, ", "));
}

}  // namespace

std::string sentence(const Finding& finding) {
  const bool many = finding.count > 1;
  const std::string who = finding.kind == Kind::kUnexplained ? "" : subject(finding);
  const std::string_view has = many ? "have" : "has";
  switch (finding.kind) {
    case Kind::kDead:
      return fmt::format("{} {} dead: NCCL has given up reaching {}.", who, many ? "are" : "is",
                         many ? "them" : "it");
    case Kind::kUnresponsive:
      return fmt::format("{} {} not answer NCCL: crashed, stopped or cut off.", who,
                         many ? "do" : "does");
    case Kind::kMissing:
      return fmt::format("{} {} not in the communicator, though others are: left it or never came.",
                         who, many ? "are" : "is");
    case Kind::kLagging:
      if (finding.launched == 0) {
        return fmt::format("{} {} launched no {} operation, others {}.", who, has,
                           finding.operation, finding.most);
      }
      return fmt::format("{} {} launched {} {} operations, others {}.", who, has, finding.launched,
                         finding.operation, finding.most);
    case Kind::kFailed:
      return fmt::format("{} {}: {}.", who, many ? "report an error" : "reports an error",
                         finding.detail);
    case Kind::kStatus:
      return fmt::format("{} {} {}.", who, has, finding.detail);
    case Kind::kUnexplained:
      return fmt::format("NCCL reports {}: see its own text with `ncclras -v`.", finding.detail);
  }
  return "";
}

std::string summary(const Report& report) {
  std::int64_t communicators = 0;
  for (const Communicators& some : report.communicators) {
    communicators += some.count;
  }
  return fmt::format("NCCL {}: {}, {}, {}, {}", report.nccl_version, counted(report.nodes, "node"),
                     counted(report.processes, "process"), counted(report.gpus, "GPU"),
                     counted(communicators, "communicator"));
}

json::Value to_json(const Report& report) {
  json::Value out = {{"schema", "tapas.ras/1"}, {"nccl_version", report.nccl_version},
                     {"nodes", report.nodes},   {"processes", report.processes},
                     {"gpus", report.gpus},     {"timeouts", report.timeouts}};
  json::Value& communicators = out["communicators"] = json::Value::array();
  for (const Communicators& some : report.communicators) {
    json::Value one = {{"count", some.count}, {"size", some.size}};
    if (!some.hash.empty()) {
      one["hash"] = some.hash;
    }
    communicators.push_back(std::move(one));
  }
  json::Value& findings = out["findings"] = json::Value::array();
  for (const Finding& finding : report.findings) {
    json::Value one = {{"kind", to_string(finding.kind)}, {"count", finding.count}};
    if (!finding.host.empty()) {
      one["host"] = finding.host;
      one["pid"] = finding.pid;
      one["gpu"] = finding.gpu;
    }
    json::Value& ranks = one["ranks"] = json::Value::array();
    for (const Member& member : finding.members) {
      json::Value rank = {{"communicator", member.communicator}};
      if (member.rank) {
        rank["rank"] = *member.rank;
      }
      ranks.push_back(std::move(rank));
    }
    if (finding.kind == Kind::kLagging) {
      one["operation"] = finding.operation;
      one["launched"] = finding.launched;
      one["most"] = finding.most;
    }
    if (!finding.detail.empty()) {
      one["detail"] = finding.detail;
    }
    one["sentence"] = sentence(finding);
    findings.push_back(std::move(one));
  }
  out["findings_left_out"] = report.left_out;
  return out;
}

}  // namespace tapas::agent::ras
