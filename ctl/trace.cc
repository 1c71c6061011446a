#include "ctl/trace.h"

#include "ctl/table.h"
#include "solver/profile/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace tapas::ctl {
namespace {

constexpr double kMostSeconds = 1e6;
constexpr std::uint32_t kMostRanks = 1U << 20U;
constexpr std::uint64_t kMostStepsApart = 1000000;

/// Where each known column stands; npos = not there.
struct Columns {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t count = 0;
  std::size_t step = kNone, iteration = kNone, rank = kNone, compute = kNone, forward = kNone,
              backward = kNone, microbatches = kNone, stage = kNone, replica = kNone, span = kNone,
              input = kNone, tokens = kNone, phase = kNone;
};

Result<Columns> columns_of(std::string_view name, std::string_view header) {
  Columns columns;
  const std::map<std::string_view, std::size_t*> known = {{"step", &columns.step},
                                                          {"iteration_time_s", &columns.iteration},
                                                          {"rank", &columns.rank},
                                                          {"compute_s", &columns.compute},
                                                          {"fwd_compute_s", &columns.forward},
                                                          {"bwd_compute_s", &columns.backward},
                                                          {"microbatches", &columns.microbatches},
                                                          {"pp_stage", &columns.stage},
                                                          {"dp_rank", &columns.replica},
                                                          {"step_span_s", &columns.span},
                                                          {"input_wait_s", &columns.input},
                                                          {"work_tokens", &columns.tokens},
                                                          {"phase", &columns.phase}};
  for (const std::string_view title : solver::profile::split_fields(header)) {
    if (const auto found = known.find(title); found != known.end()) {
      if (*found->second != Columns::kNone) {
        return fail(ErrorCode::kInvalid, "{}:1: the column \"{}\" is there twice", name, title);
      }
      *found->second = columns.count;
    }
    ++columns.count;
  }
  const bool computes = columns.compute != Columns::kNone ||
                        (columns.forward != Columns::kNone && columns.backward != Columns::kNone);
  const bool times = columns.iteration != Columns::kNone && columns.rank == Columns::kNone;
  const bool ranks = columns.rank != Columns::kNone && computes;
  if (columns.step == Columns::kNone || (!times && !ranks)) {
    return fail(ErrorCode::kInvalid,
                "{}:1: the header is \"{}\"; expected the columns \"step,iteration_time_s\" (a "
                "job's step times), or \"step,rank\" with \"compute_s\" or "
                "\"fwd_compute_s,bwd_compute_s\" (compute of each rank)",
                name, printable(header.substr(0, 120)));
  }
  return columns;
}

/// One line of the table; the first error sticks.
class Line {
 public:
  Line(std::string_view name, std::size_t number, std::vector<std::string_view> fields)
      : name_(name), number_(number), fields_(std::move(fields)) {}

  [[nodiscard]] std::uint64_t whole(std::size_t column, std::string_view title,
                                    std::uint64_t most) {
    const std::string_view text = fields_[column];
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > most) {
      complain(title, text, fmt::format("a whole number from 0 to {}", most));
    }
    return value;
  }
  [[nodiscard]] double seconds(std::size_t column, std::string_view title) {
    const double value = number(column);
    if (!(value > 0)) {
      complain(title, fields_[column],
               fmt::format("seconds above 0, at most {:.0f}", kMostSeconds));
    }
    return value;
  }
  /// No time at all is one, too.
  [[nodiscard]] double wait(std::size_t column, std::string_view title) {
    const double value = number(column);
    if (!(value >= 0)) {
      complain(title, fields_[column], fmt::format("seconds from 0 to {:.0f}", kMostSeconds));
    }
    return value;
  }
  [[nodiscard]] bool empty(std::size_t column) const { return fields_[column].empty(); }
  void complain(std::string_view title, std::string_view seen, std::string_view expected) {
    if (!error_) {
      error_ =
          Error{ErrorCode::kInvalid, fmt::format("{}:{}: {} is \"{}\"; expected {}", name_, number_,
                                                 title, printable(seen.substr(0, 60)), expected)};
    }
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  /// NaN when it is none, or larger than any time.
  [[nodiscard]] double number(std::size_t column) const {
    const std::string_view text = fields_[column];
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    return whole && value <= kMostSeconds ? value : std::numeric_limits<double>::quiet_NaN();
  }

  std::string_view name_;
  std::size_t number_;
  std::vector<std::string_view> fields_;
  std::optional<Error> error_;
};

/// Rows with the file's own rank numbers in Row::rank; `ranks` by number.
Trace::Row read_row(const Columns& columns, Line& line,
                    std::map<std::uint32_t, Trace::Rank>& ranks) {
  Trace::Row row;
  row.step = line.whole(columns.step, "step", UINT64_MAX);
  row.plain = columns.phase == Columns::kNone || line.empty(columns.phase);
  if (columns.iteration != Columns::kNone) {
    row.wall_s = line.seconds(columns.iteration, "iteration_time_s");
    ranks.try_emplace(0);
    return row;
  }
  const auto part = [&](std::size_t column, std::string_view title, std::uint32_t most) {
    return column == Columns::kNone ? 0U
                                    : static_cast<std::uint32_t>(line.whole(column, title, most));
  };
  row.rank = part(columns.rank, "rank", kMostRanks);
  const double compute_s = columns.compute != Columns::kNone
                               ? line.seconds(columns.compute, "compute_s")
                               : line.seconds(columns.forward, "fwd_compute_s") +
                                     line.seconds(columns.backward, "bwd_compute_s");
  const std::uint32_t microbatches =
      std::max(1U, part(columns.microbatches, "microbatches", 1U << 20U));
  row.compute_s = compute_s / microbatches;
  row.tokens = static_cast<double>(part(columns.tokens, "work_tokens", UINT32_MAX)) / microbatches;
  row.input_s = columns.input == Columns::kNone ? 0 : line.wait(columns.input, "input_wait_s");
  row.wall_s = columns.span == Columns::kNone ? compute_s + row.input_s
                                              : line.seconds(columns.span, "step_span_s");
  const Trace::Rank rank{row.rank,
                         part(columns.stage, "pp_stage", 4096),
                         part(columns.replica, "dp_rank", kMostRanks),
                         {}};
  const auto [known, fresh] = ranks.try_emplace(row.rank, rank);
  if (!fresh && known->second.stage != rank.stage) {
    line.complain("pp_stage", std::to_string(rank.stage),
                  fmt::format("{}, as in earlier rows of rank {}", known->second.stage, row.rank));
  }
  return row;
}

/// Where the columns of transfers stand, in the order of kLinkColumns; kNone = not there.
constexpr std::array<std::string_view, 5> kLinkColumns = {"step", "src", "dst", "bytes",
                                                          "transfer_s"};
std::array<std::size_t, 5> link_columns(const std::vector<std::string_view>& titles) {
  std::array<std::size_t, 5> where{};
  for (std::size_t i = 0; i < where.size(); ++i) {
    const auto found = std::find(titles.begin(), titles.end(), kLinkColumns[i]);
    where[i] =
        found == titles.end() ? Columns::kNone : static_cast<std::size_t>(found - titles.begin());
  }
  return where;
}

}  // namespace

bool has_links(std::string_view text) {
  Lines lines(text);
  lines.next();
  const auto where = link_columns(solver::profile::split_fields(lines.line()));
  return where[1] != Columns::kNone && where[2] != Columns::kNone;
}

Result<LinkTrace> read_link_trace(std::string_view name, std::string_view text,
                                  const ReplayProgress& progress) {
  Lines lines(text, progress);
  lines.next();
  const std::vector<std::string_view> titles = solver::profile::split_fields(lines.line());
  const auto where = link_columns(titles);
  if (const auto missing = std::find(where.begin(), where.end(), Columns::kNone);
      missing != where.end()) {
    return fail(ErrorCode::kInvalid,
                "{}:1: the column \"{}\" is missing; transfers need "
                "\"step,src,dst,bytes,transfer_s\"",
                name, kLinkColumns[static_cast<std::size_t>(missing - where.begin())]);
  }
  constexpr std::uint64_t kMostBytes = 1ULL << 50U;
  LinkTrace trace;
  std::map<std::string, std::uint32_t, std::less<>> nodes;
  while (lines.next()) {
    if (lines.blank()) {
      continue;
    }
    const std::vector<std::string_view> fields = solver::profile::split_fields(lines.line());
    if (fields.size() != titles.size()) {
      return fail(ErrorCode::kInvalid, "{}:{}: {} fields; expected {}, as in the header", name,
                  lines.number(), fields.size(), titles.size());
    }
    Line line(name, lines.number(), fields);
    const auto node = [&](std::size_t column, std::string_view title) {
      if (fields[column].empty()) {
        line.complain(title, "", "the name of a node");
      }
      return nodes
          .try_emplace(std::string(fields[column]), static_cast<std::uint32_t>(nodes.size()))
          .first->second;
    };
    LinkTrace::Row row;
    row.step = line.whole(where[0], "step", UINT64_MAX);
    row.from = node(where[1], "src");
    row.to = node(where[2], "dst");
    const std::uint64_t bytes = line.whole(where[3], "bytes", kMostBytes);
    const double transfer_s = line.seconds(where[4], "transfer_s");
    if (bytes == 0) {
      line.complain("bytes", fields[where[3]], "at least 1");
    }
    if (row.from == row.to) {
      line.complain("dst", fields[where[2]], "another node than src");
    }
    if (!trace.rows.empty() && row.step < trace.rows.back().step) {
      line.complain("step", fields[where[0]],
                    fmt::format("{} or more, as rows are in the order of their steps",
                                trace.rows.back().step));
    }
    if (line.error()) {
      return tl::unexpected(*line.error());
    }
    row.seconds_per_byte = transfer_s / static_cast<double>(bytes);
    trace.steps += trace.rows.empty() || row.step != trace.rows.back().step ? 1 : 0;
    trace.rows.push_back(row);
  }
  if (trace.rows.empty()) {
    return fail(ErrorCode::kInvalid, "{}: no rows below the header; expected one per transfer",
                name);
  }
  trace.nodes.resize(nodes.size());
  for (const auto& [node, index] : nodes) {
    trace.nodes[index] = node;
  }
  return trace;
}

Result<Trace> read_trace(std::string_view name, std::string_view text,
                         const ReplayProgress& progress) {
  Lines lines(text, progress);
  lines.next();
  const auto columns = columns_of(name, lines.line());
  if (!columns) {
    return tl::unexpected(columns.error());
  }
  Trace trace;
  std::map<std::uint32_t, Trace::Rank> ranks;
  std::set<std::uint32_t> seen;  // In the present step.
  while (lines.next()) {
    if (lines.blank()) {
      continue;
    }
    std::vector<std::string_view> fields = solver::profile::split_fields(lines.line());
    if (fields.size() != columns->count) {
      return fail(ErrorCode::kInvalid, "{}:{}: {} fields; expected {}, as in the header", name,
                  lines.number(), fields.size(), columns->count);
    }
    Line line(name, lines.number(), std::move(fields));
    const Trace::Row row = read_row(*columns, line, ranks);
    const bool first = trace.rows.empty() || row.step != trace.rows.back().step;
    if (!trace.rows.empty() && row.step < trace.rows.back().step) {
      line.complain("step", std::to_string(row.step),
                    fmt::format("{} or more, as rows are in the order of their steps",
                                trace.rows.back().step));
    }
    if (!trace.rows.empty() && row.step - trace.rows.back().step > kMostStepsApart) {
      line.complain("step", std::to_string(row.step),
                    fmt::format("at most {} after the row before, which is of step {}",
                                kMostStepsApart, trace.rows.back().step));
    }
    if (first) {
      seen.clear();
      ++trace.steps;
    }
    if (!seen.insert(row.rank).second) {
      line.complain(columns->iteration == Columns::kNone ? "rank" : "step",
                    std::to_string(columns->iteration == Columns::kNone ? row.rank : row.step),
                    "each one once in a step");
    }
    if (line.error()) {
      return tl::unexpected(*line.error());
    }
    trace.rows.push_back(row);
  }
  if (trace.rows.empty()) {
    return fail(ErrorCode::kInvalid, "{}: no rows below the header; expected one per step", name);
  }
  std::map<std::uint32_t, std::uint32_t> index;
  for (const auto& [number, rank] : ranks) {
    index[number] = static_cast<std::uint32_t>(trace.ranks.size());
    trace.ranks.push_back(rank);
  }
  for (Trace::Row& row : trace.rows) {
    row.rank = index[row.rank];
  }
  return trace;
}

}  // namespace tapas::ctl
