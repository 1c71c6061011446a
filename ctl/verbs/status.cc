#include "ctl/agents.h"
#include "ctl/events_text.h"
#include "ctl/fields.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace tapas::ctl {

namespace {

/// "-" for a level that is not known yet, which the API writes as 0.
std::string level(const json::Value& job, std::string_view key) {
  const double seconds = number_at(job, key);
  return seconds > 0 ? format_seconds(seconds) : "-";
}

/// `decision` is the job's last one, null when there is none.
std::string job_text(const json::Value& job, const json::Value& decision) {
  const json::Value& shape = object_at(job, "shape");
  std::string out =
      fmt::format("{} {}  {}  epoch {}  step {}  TP {} x PP {} x DP {}\n", bold("JOB"),
                  printable(text_at(job, "job")), printable(text_at(job, "phase", "?")),
                  count_at(job, "epoch"), count_at(job, "last_step"), count_at(shape, "tp"),
                  count_at(shape, "pp"), count_at(shape, "dp"));
  out += fmt::format("  step time  observed {}, healthy {}, predicted {}, bound {}",
                     level(job, "observed_step_s"), level(job, "healthy_step_s"),
                     level(job, "predicted_step_s"), level(job, "bound_step_s"));
  const double ratio = number_at(job, "observed_step_s") / number_at(job, "bound_step_s");
  out +=
      std::isfinite(ratio) && ratio > 0 ? fmt::format(" (observed / bound {:.3f})\n", ratio) : "\n";
  const std::uint64_t reporting = count_at(job, "ranks_reporting");
  const std::uint64_t expected = count_at(job, "ranks_expected");
  const std::string ranks = fmt::format("{} of {} reporting", reporting, expected);
  out += "  ranks      " + (reporting < expected ? red(ranks) : ranks) + "\n";
  out += "  verdict    " + printable(text_at(job, "verdict", "none yet")) + "\n";
  for (const json::Value& link : array_at(job, "slow_links")) {
    out += "  link       " + printable(link.is_string() ? link.get<std::string>() : "") + "\n";
  }
  if (!decision.is_null()) {
    out += fmt::format("  decision   {} of {} UTC, {}: {}\n", count_at(decision, "decision"),
                       short_time(text_at(decision, "time")),
                       printable(text_at(decision, "reason_code")),
                       printable(text_at(decision, "sentence")));
  }
  return out;
}

/// What agents find wrong with their nodes, a line each.
std::string findings_text(const json::Value& agents) {
  constexpr std::size_t kMaxLines = 8;
  std::string out;
  std::size_t count = 0;
  for (const json::Value& agent : agents) {
    for (const json::Value& finding : array_at(agent, "findings")) {
      if (++count <= kMaxLines) {
        out += fmt::format("  {}  {}\n", printable(text_at(agent, "node")),
                           printable(text_at(finding, "text")));
      }
    }
  }
  if (count == 0) {
    return "";
  }
  if (count > kMaxLines) {
    out += fmt::format("  {} more: tapasctl status -o json\n", count - kMaxLines);
  }
  return bold("FOUND ON NODES") + "\n" + out;
}

std::string status_text(const json::Value& status, const json::Value& events,
                        const std::vector<json::Value>& decisions) {
  std::string out = fmt::format("tapasd {}, term {}, auto {}",
                                printable(text_at(status, "version")), count_at(status, "term"),
                                flag_at(status, "auto_replan") ? "on" : "off (observe only)");
  const std::string reason = printable(text_at(status, "auto_reason"));
  out += reason.empty() ? "\n" : fmt::format(": {}\n", reason);

  const json::Value& jobs = array_at(status, "jobs");
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    out += job_text(jobs[j], decisions[j]);
  }
  if (jobs.empty()) {
    out += bold("JOB") + " none: list one under \"jobs\" in tapasd.json\n";
  }

  constexpr std::size_t kMaxNamed = 8;
  out += bold("AGENTS") + " " + agent_digest(array_at(status, "agents"), kMaxNamed);

  out += findings_text(array_at(status, "agents"));

  const json::Value& rejected = object_at(status, "rejected");
  std::string counts;
  for (const auto& [name, count] : rejected.items()) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", printable(name), count_of(count));
  }
  out += bold("REJECTED") + " " + (counts.empty() ? "nothing" : counts) + "\n";

  out += bold("LAST EVENTS") + "\n";
  for (const json::Value& event : events) {
    out += event_line(event) + "\n";
  }
  return out;
}

Result<Exit> show_status(const Context& context) {
  const Client client = context.client();
  auto status = client.get("/v1/status", "tapas.status/1");
  if (!status) {
    return tl::unexpected(status.error());
  }
  if (context.json()) {
    print_json(*status);
    return Exit::kOk;
  }
  const auto events = client.get("/v1/events?limit=5", "tapas.events/1");
  if (!events) {
    return tl::unexpected(events.error());
  }
  std::vector<json::Value> decisions;
  for (const json::Value& job : array_at(*status, "jobs")) {
    const auto last =
        client.get(fmt::format("/v1/jobs/{}/decisions?limit=1", url_escape(text_at(job, "job"))),
                   "tapas.decisions/1");
    const json::Value none = json::Value::array();
    const json::Value& found = last ? array_at(*last, "decisions") : none;
    decisions.push_back(found.empty() ? json::Value() : found[0]);
  }
  print(status_text(*status, array_at(*events, "events"), decisions));
  return Exit::kOk;
}

}  // namespace

void add_status(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("status", "One screen: jobs, agents, what went wrong lately");
  verb->footer(
      "Examples:\n  tapasctl status\n"
      "  tapasctl status -o json | jq -r '.agents[] | select(.connected | not) | .node'");
  add_socket_option(*verb, context);
  add_format_option(*verb, context);
  verb->callback([&context] { context.run = [&context] { return show_status(context); }; });
}

}  // namespace tapas::ctl
