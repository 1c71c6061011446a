#include "agent/ras/gather.h"

#include "base/clean.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tapas::agent::ras {

namespace {

/// NCCL's words for a rank that is not in its communicator (UNKNOWN before 2.26).
bool is_absent(const std::string& status) { return status == "NOCOMM" || status == "UNKNOWN"; }

void put_at(const Place& place, Finding& finding) {
  finding.host = clean(place.host);
  finding.pid = place.pid;
  finding.gpu = clean(place.gpu);
}

Finding finding_of(Kind kind, const Place& place, std::vector<Member> members) {
  Finding finding;
  finding.kind = kind;
  put_at(place, finding);
  finding.members = std::move(members);
  return finding;
}

}  // namespace

void Gather::add(Finding finding) {
  ++told_;
  if (findings_.size() < kMaxFindings) {
    findings_.push_back(std::move(finding));
  } else {
    ++left_out_;
  }
}

void Gather::process(Kind kind, const Place& place) {
  const std::size_t index = findings_.size();
  if (silent_.emplace(Process{place.host, place.pid}, index).second) {
    add(finding_of(kind, place, {}));
  }
}

void Gather::silent_rank(Kind kind, const std::string& communicator, const RankAt& rank) {
  ++told_;
  if (!known_.emplace(communicator, rank.rank).second) {
    return;
  }
  if (rank.place.host.empty()) {
    add(finding_of(kind, rank.place, {{communicator, rank.rank}}));
    return;
  }
  process(kind, rank.place);
  const std::size_t index = silent_.at({rank.place.host, rank.place.pid});
  if (index < findings_.size()) {
    findings_[index].members.push_back({communicator, rank.rank});
  }
}

void Gather::missing_rank(const std::string& communicator, const RankAt& rank) {
  ++told_;
  if (known_.emplace(communicator, rank.rank).second) {
    add(finding_of(Kind::kMissing, rank.place, {{communicator, rank.rank}}));
  }
}

void Gather::unnamed(Kind kind, const std::string& communicator, std::int64_t count) {
  if (count <= 0) {
    return;
  }
  Finding finding;
  finding.kind = kind;
  finding.count = count;
  if (!communicator.empty()) {
    finding.members.push_back({communicator, {}});
  }
  add(std::move(finding));
}

void Gather::add_group(const Finding& pattern, const std::string& communicator,
                       const Group& group) {
  for (const RankAt& rank : group.ranks) {
    Finding finding = pattern;
    put_at(rank.place, finding);
    finding.members.push_back({communicator, rank.rank});
    add(std::move(finding));
  }
  const std::int64_t rest = group.count - static_cast<std::int64_t>(group.ranks.size());
  if (rest > 0) {
    Finding finding = pattern;
    finding.count = rest;
    finding.members.push_back({communicator, {}});
    add(std::move(finding));
  }
}

void Gather::launches(const std::string& communicator, const std::string& operation,
                      const std::vector<Group>& groups) {
  Finding pattern;
  pattern.kind = Kind::kLagging;
  pattern.operation = clean(operation);
  for (const Group& group : groups) {
    pattern.most = std::max(pattern.most, group.launched);
  }
  for (const Group& group : groups) {
    if (group.launched < pattern.most) {
      pattern.launched = group.launched;
      add_group(pattern, communicator, group);
    }
  }
}

void Gather::statuses(const std::string& communicator, const std::vector<Group>& groups) {
  const Group* usual = nullptr;
  for (const Group& group : groups) {
    if (!is_absent(group.word) && (usual == nullptr || group.count > usual->count)) {
      usual = &group;
    }
  }
  for (const Group& group : groups) {
    if (is_absent(group.word)) {
      for (const RankAt& rank : group.ranks) {
        missing_rank(communicator, rank);
      }
      unnamed(Kind::kMissing, communicator,
              group.count - static_cast<std::int64_t>(group.ranks.size()));
    } else if (&group != usual) {
      Finding pattern;
      pattern.kind = Kind::kStatus;
      pattern.detail =
          fmt::format("status {}, most others {}", clean(group.word), clean(usual->word));
      add_group(pattern, communicator, group);
    }
  }
}

void Gather::errors(const std::string& communicator, const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    Finding pattern;
    pattern.kind = Kind::kFailed;
    pattern.detail = clean(group.word);
    add_group(pattern, communicator, group);
  }
}

void Gather::unexplained(std::string_view detail) {
  Finding finding;
  finding.detail = clean(detail);
  add(std::move(finding));
}

void Gather::finish(Report& report) {
  report.findings = std::move(findings_);
  report.left_out = left_out_;
}

}  // namespace tapas::agent::ras
