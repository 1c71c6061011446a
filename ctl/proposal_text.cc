#include "ctl/proposal_text.h"

#include "ctl/fields.h"
#include "ctl/plan_text.h"
#include "ctl/table.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace tapas::ctl {

namespace {

/// Above the bound by more than this share, a full replan is worth a look.
constexpr double kFarFromBound = 0.10;

double bytes_of(const json::Value& moves) {
  double bytes = 0;
  for (const json::Value& move : moves) {
    bytes += number_at(move, "bytes");
  }
  return bytes;
}

/// The step that the job has after the proposal, which may be to stay.
double step_then_s(const json::Value& proposal) {
  return number_at(proposal, flag_at(proposal, "improves") ? "step_after_s" : "step_before_s");
}

std::string step_lines(const json::Value& proposal) {
  const double before = number_at(proposal, "step_before_s");
  const double then = step_then_s(proposal);
  const double bound = number_at(proposal, "lower_bound_s");
  const bool improves = flag_at(proposal, "improves");
  std::string out = fmt::format("step time   {} now", format_seconds(before));
  if (improves) {
    out += fmt::format(", {} after ({} less)", format_seconds(then),
                       format_percent(1 - then / before));
  }
  out += fmt::format("\nbound       no plan is below {}: the gap is at most {}\n",
                     format_seconds(bound), format_percent(then / bound - 1));
  if (improves) {
    out += fmt::format("switch      {} of pause; net gain {} over the expected episode\n",
                       format_seconds(number_at(proposal, "switch_s")),
                       format_seconds(number_at(proposal, "net_gain_s")));
  }
  const std::string stopped = text_at(proposal, "stopped");
  out += fmt::format("search      {}{}\n",
                     format_count(count_at(proposal, "plans_evaluated"), "evaluation"),
                     stopped.empty() ? "" : "; ended because " + printable(stopped));
  return out;
}

/// One row per widening, the first answer first.
std::string tried_text(const json::Value& tried) {
  const bool timed = std::any_of(tried.begin(), tried.end(), [](const json::Value& step) {
    return step.is_object() && step.contains("elapsed_s");
  });
  std::vector<Table::Column> columns = {
      {"TRIED"}, {"BEST STEP", Align::kRight}, {"EVALUATIONS", Align::kRight}};
  if (timed) {
    columns.push_back({"AFTER", Align::kRight});
  }
  Table table(columns);
  for (const json::Value& step : tried) {
    std::vector<std::string> row = {printable(text_at(step, "what", "?")),
                                    format_seconds(number_at(step, "step_s")),
                                    fmt::to_string(count_at(step, "evaluations"))};
    if (timed) {
      row.push_back(format_seconds(number_at(step, "elapsed_s")));
    }
    table.add_row(std::move(row));
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string full_text(const json::Value& proposal, const json::Value& full) {
  if (full.contains("error")) {
    return fmt::format("\nfull replan  {}\n", printable(text_at(full, "error")));
  }
  const bool improves = flag_at(proposal, "improves");
  const json::Value& moves = array_at(proposal, "moves");
  Table table({{""}, {"MICRO-REPLAN", Align::kRight}, {"FULL REPLAN", Align::kRight}});
  table.add_row({"step time", format_seconds(step_then_s(proposal)),
                 format_seconds(number_at(full, "step_after_s"))});
  table.add_row({"pause of the switch",
                 improves ? format_seconds(number_at(proposal, "switch_s")) : "-",
                 format_seconds(number_at(full, "switch_s"))});
  table.add_row({"to move", improves ? format_bytes(bytes_of(moves)) : "-",
                 format_bytes(number_at(full, "bytes"))});
  table.add_row({"found in", format_seconds(number_at(proposal, "solve_s")),
                 format_seconds(number_at(full, "solve_s"))});
  table.add_row({"net gain", improves ? format_seconds(number_at(proposal, "net_gain_s")) : "-",
                 format_seconds(number_at(full, "net_gain_s"))});
  std::string out =
      fmt::format("\n{}The full replan is {}, without {}.\n", table.text(),
                  printable(text_at(full, "shape")), printable(text_at(full, "without")));
  for (const json::Value& obstacle : array_at(full, "obstacles")) {
    out += fmt::format("Not while the job runs: {}\n",
                       obstacle.is_string() ? printable(obstacle.get<std::string>()) : "?");
  }
  return out;
}

}  // namespace

std::string proposal_text(const json::Value& proposal) {
  std::string out = printable(text_at(proposal, "reason", "no reason given")) + "\n\n";
  out += step_lines(proposal) + tried_text(array_at(proposal, "tried"));
  if (flag_at(proposal, "improves")) {
    out += "\n" + moves_text(array_at(proposal, "moves"));
  }
  const json::Value& full = object_at(proposal, "full");
  if (!full.empty()) {
    return out + full_text(proposal, full);
  }
  if (step_then_s(proposal) > (1 + kFarFromBound) * number_at(proposal, "lower_bound_s")) {
    out +=
        "\nFar from the bound: `tapasctl whatif --full` shows what a full replan would cost and "
        "gain.\n";
  }
  return out;
}

}  // namespace tapas::ctl
