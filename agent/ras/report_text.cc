// The text form: a job summary, a table of communicators, then "Errors" and "Warnings", each with
// blocks of a head ("DEAD", "#0-1 (hash) MISMATCH") and indented lines.
#include "agent/ras/gather.h"
#include "base/clean.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tapas::agent::ras {

namespace {

bool eat(std::string_view& text, std::string_view word) {
  if (text.substr(0, word.size()) != word) {
    return false;
  }
  text.remove_prefix(word.size());
  return true;
}

/// No number of a report is negative.
template <typename Number>
bool eat_number(std::string_view& text, Number& number) {
  if (text.empty() || text.front() == '-') {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) {
    return false;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Before and after the first `mark`; all is before it when there is none.
std::pair<std::string_view, std::string_view> cut(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) {
    return {text, {}};
  }
  return {text.substr(0, at), text.substr(at + mark.size())};
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> found;
  for (std::string word; in >> word;) {
    found.push_back(word);
  }
  return found;
}

std::int64_t number_or_0(std::string_view text) {
  std::int64_t number = 0;
  return eat_number(text, number) ? number : 0;
}

/// "GPU 3 managed by process 5129 on node 10.0.0.1"; anything else is a place that RAS does not
/// know.
Place rank_place(std::string_view text) {
  Place place;
  if (!eat(text, "GPU ")) {
    return place;
  }
  const auto [gpu, process] = cut(text, " managed by process ");
  std::string_view rest = process;
  if (eat_number(rest, place.pid) && eat(rest, " on node ")) {
    place.gpu = gpu;
    place.host = rest;
  }
  return place;
}

/// The line is about one rank, or about several that RAS may list below it.
struct Subject {
  bool named = false;
  std::int64_t rank = 0;
  std::int64_t count = 1;
};

/// A line of the table of communicators.
struct Row {
  std::int64_t group = 0;
  std::int64_t count = 0;
  std::int64_t size = 0;
  std::string errors;
};

class TextReader {
 public:
  Result<Report> read(std::string_view text) {
    while (!text.empty()) {
      ++number_;
      auto [line, rest] = cut(text, "\n");
      text = rest;
      if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
      }
      if (number_ == 1) {
        const std::string_view seen = line;
        if (!eat(line, "NCCL version ")) {
          return fail(ErrorCode::kInvalid,
                      "no report of NCCL's RAS: line 1 is \"{}\", not \"NCCL version ...\"",
                      clean(seen));
        }
        report_.nccl_version = clean(cut(line, " ").first);
      } else if (!eat_heading(line)) {
        read_line(line);
      }
    }
    if (section_ != Section::kWarnings) {
      return fail(ErrorCode::kInvalid,
                  "the report is cut off: it ends at line {} without a heading \"Warnings\"; ask "
                  "again",
                  number_);
    }
    end_block();
    explain_rows();
    gather_.finish(report_);
    return std::move(report_);
  }

 private:
  enum class Section { kStart, kJob, kCommunicators, kErrors, kWarnings };
  enum class Topic {
    kNone,
    kDeadProcesses,
    kSilentProcesses,
    kSilentRanks,
    kErrors,
    kStatuses,
    kLaunches
  };

  void read_line(std::string_view line) {
    if (section_ == Section::kJob) {
      job_line(line);
    } else if (section_ == Section::kCommunicators) {
      table_line(line);
    } else if (section_ != Section::kStart && !line.empty() && line.front() != '=') {
      if (line.front() == ' ') {
        block_line(line.substr(std::min(line.find_first_not_of(' '), line.size())));
      } else {
        start_block(line);
      }
    }
  }

  bool eat_heading(std::string_view line) {
    if (line == "Job summary") {
      section_ = Section::kJob;
    } else if (line.substr(0, 16) == "Communicators...") {
      section_ = Section::kCommunicators;
    } else if (line == "Errors") {
      end_block();
      section_ = Section::kErrors;
    } else if (line == "Warnings") {
      end_block();
      section_ = Section::kWarnings;
    } else {
      return false;
    }
    return true;
  }

  /// The totals stand in the columns whose heading's second line is "(total)".
  void job_line(std::string_view line) {
    if (line.find("(total)") != std::string_view::npos) {
      totals_.clear();
      std::string_view rest = line;
      while (!rest.empty()) {
        const auto [column, after] = cut(rest, "  ");
        rest = after.substr(std::min(after.find_first_not_of(' '), after.size()));
        if (!column.empty()) {
          totals_.push_back(column.find("(total)") != std::string_view::npos);
        }
      }
      return;
    }
    const std::vector<std::string> values = words(line);
    if (!totals_.empty() && values.size() == totals_.size()) {
      std::vector<std::int64_t> found;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (totals_[i]) {
          found.push_back(number_or_0(values[i]));
        }
      }
      if (found.size() == 3) {
        report_.nodes = found[0];
        report_.processes = found[1];
        report_.gpus = found[2];
      }
    }
    totals_.clear();
  }

  void table_line(std::string_view line) {
    const std::vector<std::string> columns = words(line);
    Row row;
    std::string_view group = columns.empty() ? std::string_view() : columns[0];
    if (columns.size() != 8 || !eat_number(group, row.group) || !group.empty()) {
      return;
    }
    row.count = number_or_0(columns[1]);
    row.size = number_or_0(columns[4]);
    row.errors = columns[7];
    report_.communicators.push_back({"", row.count, row.size});
    if (row.errors != "OK") {
      rows_.push_back(std::move(row));
    }
  }

  void start_block(std::string_view head) {
    end_block();
    head_ = clean(head);
    told_before_ = gather_.told();
    std::string_view rest = head;
    if (eat(rest, "#") && eat_number(rest, group_)) {
      const auto [index, after] = cut(rest, " (");
      const auto [hash, word] = cut(after, ") ");
      communicator_ = clean(hash);
      word_ = clean(word);
      topic_ = word_ == "INCOMPLETE" ? Topic::kSilentRanks : Topic::kNone;
    } else {
      topic_ = head == "DEAD"         ? Topic::kDeadProcesses
               : head == "INCOMPLETE" ? Topic::kSilentProcesses
                                      : Topic::kNone;
    }
  }

  void block_line(std::string_view line) {
    std::string_view rest = line;
    std::int64_t number = 0;
    if (eat(rest, "Encountered ") && eat_number(rest, number)) {
      report_.timeouts = number;
    } else if (eat(rest, "Communicator ranks have different ")) {
      end_topic();
      topic_ = rest == "status" ? Topic::kStatuses : Topic::kLaunches;
      operation_ = clean(cut(rest, " operation counts").first);
    } else if (cut(line, " error").first == "Initialization" ||
               cut(line, " error").first == "Asynchronous") {
      end_topic();
      topic_ = Topic::kErrors;
    } else if (topic_ == Topic::kDeadProcesses || topic_ == Topic::kSilentProcesses) {
      process_line(line);
    } else if (topic_ == Topic::kSilentRanks) {
      silent_rank_line(line);
    } else {
      rank_line(line);
    }
  }

  [[nodiscard]] Kind process_kind() const {
    return topic_ == Topic::kDeadProcesses ? Kind::kDead : Kind::kUnresponsive;
  }

  void process_line(std::string_view line) {
    std::string_view rest = line;
    Place place;
    if (eat(rest, "Process ") && eat_number(rest, place.pid) && eat(rest, " on node ")) {
      const auto [host, gpus] = cut(rest, " managing GPU");
      place.host = host;
      place.gpu = cut(gpus, " ").second;
      gather_.process(process_kind(), place);
      ++named_;
      return;
    }
    eat(rest, "Missing communicator data from ");
    std::int64_t count = 0;
    if (eat_number(rest, count) && eat(rest, " job process")) {
      count_ = count;
    }
  }

  void silent_rank_line(std::string_view line) {
    std::string_view rest = line;
    RankAt rank;
    if (eat(rest, "Rank ") && eat_number(rest, rank.rank)) {
      rank.place = rank_place(cut(rest, " -- ").second);
      silent_rank(rank);
    } else if (eat(rest, "The missing rank")) {  // Before NCCL 2.26: "ranks: 3,5,7".
      rest = cut(rest, ": ").second;
      while (eat_number(rest, rank.rank)) {
        silent_rank(rank);
        eat(rest, ",");
      }
    } else if (eat(rest, "Missing communicator data from ")) {
      count_ = number_or_0(rest);
    }
  }

  void silent_rank(const RankAt& rank) {
    gather_.silent_rank(Kind::kUnresponsive, communicator_, rank);
    ++named_;
  }

  void rank_line(std::string_view line) {
    const auto [what, where] = cut(line, " -- ");
    std::string_view rest = what;
    Subject subject;
    subject.named = eat(rest, "Rank ");
    if (!eat_number(rest, subject.named ? subject.rank : subject.count) ||
        !(subject.named || eat(rest, " ranks"))) {
      return;
    }
    if (subject.named && rest.empty()) {
      if (!groups_.empty()) {
        groups_.back().ranks.push_back({subject.rank, rank_place(where)});
      }
      return;
    }
    Group group;
    if (!says(rest, group)) {
      return;
    }
    group.count = subject.count;
    if (subject.named) {
      group.ranks.push_back({subject.rank, rank_place(where)});
    }
    groups_.push_back(std::move(group));
  }

  /// " has launched up to operation 7", " have status INIT", " reported System error".
  static bool says(std::string_view text, Group& group) {
    if (eat(text, " reported ")) {
      group.word = text;
      return true;
    }
    if (!eat(text, " has ") && !eat(text, " have ")) {
      return false;
    }
    if (eat(text, "status ")) {
      group.word = text;
      return true;
    }
    return text == "not launched any operations" ||
           (eat(text, "launched up to operation ") && eat_number(text, group.launched));
  }

  void end_topic() {
    switch (topic_) {
      case Topic::kNone:
        break;
      case Topic::kDeadProcesses:
      case Topic::kSilentProcesses:
        gather_.unnamed(process_kind(), "", count_ - named_);
        break;
      case Topic::kSilentRanks:
        gather_.unnamed(Kind::kUnresponsive, communicator_, count_ - named_);
        break;
      case Topic::kErrors:
        gather_.errors(communicator_, groups_);
        break;
      case Topic::kStatuses:
        gather_.statuses(communicator_, groups_);
        break;
      case Topic::kLaunches:
        gather_.launches(communicator_, operation_, groups_);
        break;
    }
    topic_ = Topic::kNone;
    groups_.clear();
    count_ = 0;
    named_ = 0;
  }

  void end_block() {
    end_topic();
    if (head_.empty()) {
      return;
    }
    // Timeouts alone are nobody's fault: who did not answer is told in other blocks.
    if (gather_.told() == told_before_ && head_ != "TIMEOUT") {
      gather_.unexplained("\"" + head_ + "\"");
    }
    if (!word_.empty()) {
      explained_.emplace(group_, word_);
    }
    head_.clear();
    word_.clear();
  }

  /// Trouble in the table that has no block below.
  void explain_rows() {
    for (const Row& row : rows_) {
      std::string_view errors = row.errors;
      while (!errors.empty()) {
        const auto [word, rest] = cut(errors, ",");
        errors = rest;
        if (explained_.count({row.group, std::string(word)}) == 0) {
          gather_.unexplained(fmt::format("{} for group {} ({} x {} ranks) and names none of them",
                                          word, row.group, row.count, row.size));
        }
      }
    }
  }

  Report report_;
  Gather gather_;
  Section section_ = Section::kStart;
  std::size_t number_ = 0;
  std::vector<bool> totals_;
  std::vector<Row> rows_;
  std::set<std::pair<std::int64_t, std::string>> explained_;

  // The block that is being read.
  std::string head_;
  std::string word_;
  std::string communicator_;
  std::int64_t group_ = 0;
  std::size_t told_before_ = 0;

  // Its part that is being read.
  Topic topic_ = Topic::kNone;
  std::string operation_;
  std::vector<Group> groups_;
  std::int64_t count_ = 0;
  std::int64_t named_ = 0;
};

}  // namespace

Result<Report> parse_text(std::string_view text) { return TextReader().read(text); }

}  // namespace tapas::agent::ras
