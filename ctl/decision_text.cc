#include "ctl/decision_text.h"

#include "ctl/agents.h"
#include "ctl/events_text.h"
#include "ctl/fields.h"
#include "ctl/table.h"

#include <array>
#include <cmath>
#include <set>
#include <string_view>

namespace tapas::ctl {

namespace {

bool ends_with(std::string_view text, std::string_view tail) { return text.ends_with(tail); }

/// Units are in the keys, so the keys say how to print.
std::string evidence_text(const std::string& key, const json::Value& value) {
  if (value.is_string()) {
    return printable(value.get<std::string>());
  }
  if (value.is_boolean()) {
    return value.get<bool>() ? "yes" : "no";
  }
  if (!value.is_number()) {
    return "-";
  }
  const double number = value.get<double>();
  if (ends_with(key, "_s")) {
    return format_seconds(number);
  }
  if (ends_with(key, "_bytes") || key == "bytes_moved") {
    return format_bytes(number);
  }
  return format_number(number);
}

struct StepRow {
  std::string_view key;
  std::string_view title;
};
constexpr std::array kStepRows{
    StepRow{"healthy_step_s", "healthy"},
    StepRow{"slow_step_s", "slow"},
    StepRow{"step_before_s", "before a switch, predicted"},
    StepRow{"step_after_s", "after a switch, promised"},
    StepRow{"observed_after_s", "after the switch, observed"},
    StepRow{"lower_bound_s", "bound: no plan is faster"},
};

std::string step_table(const json::Value& evidence, std::set<std::string>& shown) {
  const double bound = number_at(evidence, "lower_bound_s");
  Table table({{"STEP TIME"}, {"", Align::kRight}, {"OVER BOUND", Align::kRight}});
  for (const StepRow& row : kStepRows) {
    const double seconds = number_at(evidence, row.key);
    shown.emplace(row.key);
    if (std::isfinite(seconds) && seconds > 0) {
      table.add_row({std::string(row.title), format_seconds(seconds),
                     bound > 0 ? fmt::format("{:.3f}", seconds / bound) : "-"});
    }
  }
  shown.emplace("after_over_bound_ratio");
  return table.empty() ? "" : "\n" + table.text();
}

/// What each possible answer loses over the expected rest; the one taken is marked.
std::string answer_table(const json::Value& evidence, std::set<std::string>& shown) {
  shown.emplace("answers");
  Table table({{"ANSWER"},
               {"STEP", Align::kRight},
               {"COST", Align::kRight},
               {"LOST", Align::kRight},
               {""}});
  for (const json::Value& answer : array_at(evidence, "answers")) {
    const std::string note = printable(text_at(answer, "note"));
    const std::string_view mark = flag_at(answer, "chosen") ? "taken" : "";
    table.add_row(
        {printable(text_at(answer, "answer")), format_seconds(number_at(answer, "step_s")),
         format_seconds(number_at(answer, "cost_s")), format_seconds(number_at(answer, "loss_s")),
         fmt::format("{}{}{}", mark, mark.empty() || note.empty() ? "" : ", ", note)});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string cause_line(const json::Value& evidence, std::set<std::string>& shown) {
  const std::string node = printable(text_at(evidence, "node"));
  const double slowdown = number_at(evidence, "slowdown");
  if (node.empty()) {
    return "";
  }
  shown.insert({"node", "slowdown"});
  if (!std::isfinite(slowdown)) {
    return fmt::format("{:<10}  {}\n", "cause", node);
  }
  return slowdown < kSlowNode
             ? fmt::format("{:<10}  {}, back to normal\n", "cause", node)
             : fmt::format("{:<10}  {}, {:.2f} times as slow\n", "cause", node, slowdown);
}

/// "  title  part, part, part", with the parts that are known.
std::string loop_line(const json::Value& evidence, std::set<std::string>& shown,
                      std::string_view title,
                      std::initializer_list<std::pair<std::string_view, std::string_view>> parts) {
  std::string text;
  for (const auto& [key, label] : parts) {
    const auto it = evidence.find(std::string(key));
    if (it == evidence.end()) {
      continue;
    }
    shown.emplace(key);
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", evidence_text(std::string(key), *it),
                        label);
  }
  return text.empty() ? "" : fmt::format("{:<10}  {}\n", title, text);
}

}  // namespace

std::string decision_text(const json::Value& decision) {
  std::string out = fmt::format(
      "Decision {} of {} UTC: {}, epoch {}\n{}\n", count_at(decision, "decision"),
      short_time(text_at(decision, "time")), printable(text_at(decision, "reason_code")),
      count_at(decision, "epoch"), printable(text_at(decision, "sentence")));
  const json::Value& evidence = object_at(decision, "evidence");
  std::set<std::string> shown;
  out += step_table(evidence, shown);
  out += answer_table(evidence, shown);

  std::string loop;
  loop += cause_line(evidence, shown);
  loop += loop_line(evidence, shown, "ranks", {{"ranks", ""}});
  loop += loop_line(evidence, shown, "devices", {{"devices", ""}});
  loop +=
      loop_line(evidence, shown, "compared", {{"ranks_compared", " ranks"}, {"compared_with", ""}});
  loop += loop_line(evidence, shown, "detection",
                    {{"detect_steps", " steps"}, {"detect_s", " of job time"}});
  loop += loop_line(evidence, shown, "outlook",
                    {{"expected_episode_s", " more"},
                     {"expected_because", ""},
                     {"expected_loss_s", " lost by waiting"},
                     {"lost_so_far_s", " lost so far"}});
  loop += loop_line(evidence, shown, "decided by", {{"decided_by", ""}});
  loop += loop_line(evidence, shown, "solve",
                    {{"solve_s", ""},
                     {"plans_evaluated", " evaluations"},
                     {"first_step_s", " a step by the first answer"}});
  // Only a decision that led to a switch has something to verify.
  const bool switched = evidence.contains("verify");
  loop +=
      loop_line(evidence, shown, switched ? "switch" : "would move",
                {{"switch_s", " of job time"}, {"layers_moved", " layers"}, {"bytes_moved", ""}});
  loop += loop_line(evidence, shown, "verify", {{"verify", ""}});
  out += loop.empty() ? "" : "\n" + loop;

  std::string rest;
  for (const auto& [key, value] : evidence.items()) {
    if (!shown.contains(key)) {
      rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", printable(key),
                          evidence_text(key, value));
    }
  }
  out += rest.empty() ? "" : fmt::format("{:<10}  {}\n", "numbers", rest);
  return out;
}

}  // namespace tapas::ctl
