#pragma once

#include "agent/ras/report.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapas::agent::ras {

/// Where something runs; no host when RAS does not know.
struct Place {
  std::string host;
  std::int64_t pid = -1;
  std::string gpu;
};

struct RankAt {
  std::int64_t rank = 0;
  Place place;
};

/// Ranks of a communicator that say the same: their count of launches, status or error.
struct Group {
  std::uint64_t launched = 0;
  std::string word;
  std::int64_t count = 0;  ///< At least ranks.size(); more where RAS does not list them.
  std::vector<RankAt> ranks;
};

/// Turns what either format says into findings, so that both judge alike. Not thread-safe.
class Gather {
 public:
  /// A process that RAS calls dead or unresponsive.
  void process(Kind kind, const Place& place);
  /// A rank without an answer; that of a dead process is dead, whatever `kind` says.
  void silent_rank(Kind kind, const std::string& communicator, const RankAt& rank);
  void missing_rank(const std::string& communicator, const RankAt& rank);
  /// `count` processes (no communicator) or ranks that RAS does not name; none when not positive.
  void unnamed(Kind kind, const std::string& communicator, std::int64_t count);

  void launches(const std::string& communicator, const std::string& operation,
                const std::vector<Group>& groups);
  void statuses(const std::string& communicator, const std::vector<Group>& groups);
  void errors(const std::string& communicator, const std::vector<Group>& groups);
  void unexplained(std::string_view detail);

  /// Everything added so far that became, or belongs to, a finding.
  [[nodiscard]] std::size_t told() const { return told_; }
  void finish(Report& report);

 private:
  using Process = std::pair<std::string, std::int64_t>;

  void add(Finding finding);
  /// One finding a rank, and one for those of the group that RAS does not list.
  void add_group(const Finding& pattern, const std::string& communicator, const Group& group);

  std::vector<Finding> findings_;
  std::map<Process, std::size_t> silent_;  ///< To the finding of a dead or unresponsive process.
  std::set<std::pair<std::string, std::int64_t>> known_;  ///< Ranks silent or missing.
  std::size_t left_out_ = 0;
  std::size_t told_ = 0;
};

/// The two formats. `text` is at most kMaxReportBytes.
[[nodiscard]] Result<Report> parse_text(std::string_view text);
[[nodiscard]] Result<Report> parse_json(std::string_view text);

}  // namespace tapas::agent::ras
