#include "ctl/agents.h"

#include "ctl/fields.h"
#include "ctl/table.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tapas::ctl {

namespace {

/// A wrong clock misleads whoever reads logs; TAPAS itself takes durations from one clock only.
constexpr double kWrongClockS = 5;

struct Agent {
  std::string node;
  bool connected = false;
  bool drained = false;
  bool pinned = false;
  std::string reason;  ///< of drain or pin; a node has one of them
  double quarantine_s = 0;
  double clock_off_s = 0;
  double silent_s = 0;
  double slowdown = 1;
  std::uint64_t records = 0;
  std::uint64_t dropped = 0;
  std::uint64_t over_limit = 0;

  explicit Agent(const json::Value& value)
      : node(printable(text_at(value, "node", "?"))),
        connected(flag_at(value, "connected")),
        drained(flag_at(value, "drained")),
        pinned(flag_at(value, "pinned")),
        reason(printable(text_at(value, drained ? "drain_reason" : "pin_reason"))),
        quarantine_s(number_at(value, "quarantine_s")),
        clock_off_s(number_at(value, "clock_off_s")),
        silent_s(number_at(value, "silent_s")),
        slowdown(number_at(value, "slowdown")),
        records(count_at(value, "records")),
        dropped(count_at(value, "records_dropped")),
        over_limit(count_at(value, "over_limit")) {}

  [[nodiscard]] bool wrong_clock() const { return std::abs(clock_off_s) >= kWrongClockS; }
  [[nodiscard]] bool slow() const { return slowdown >= kSlowNode; }
  /// Larger is more urgent; 0 needs no attention.
  [[nodiscard]] double urgency() const {
    return (connected ? 0 : 1000) + (slow() ? 100 * slowdown : 0) +
           (drained || pinned || quarantine_s > 0 || wrong_clock() || over_limit > 0 ? 1 : 0);
  }
  /// The daemon has no silence to report of an agent that it never heard.
  [[nodiscard]] bool never_heard() const { return !connected && silent_s == 0; }
  [[nodiscard]] std::string state() const {
    std::string text = connected ? "connected" : never_heard() ? "not seen yet" : "lost";
    text += drained ? ", drained" : pinned ? ", pinned" : "";
    if (quarantine_s > 0) {
      text += fmt::format(", no work moves back for {}", format_seconds(quarantine_s));
    }
    if (wrong_clock()) {
      text += fmt::format(", clock {} {}", format_seconds(std::abs(clock_off_s)),
                          clock_off_s > 0 ? "ahead" : "behind");
    }
    if (over_limit > 0) {
      text += fmt::format(", {} over its limit", format_count(over_limit, "message"));
    }
    return text;
  }
};

}  // namespace

std::string agent_table(const json::Value& agents) {
  Table table({{"NODE"},
               {"STATE"},
               {"SLOWDOWN", Align::kRight},
               {"RECORDS", Align::kRight},
               {"DROPPED", Align::kRight},
               {"SILENT", Align::kRight},
               {"REASON"}});
  for (const json::Value& value : agents) {
    const Agent agent(value);
    table.add_row({agent.node, agent.state(), fmt::format("{:.2f}", agent.slowdown),
                   fmt::to_string(agent.records), fmt::to_string(agent.dropped),
                   agent.never_heard() ? "-" : format_seconds(agent.silent_s), agent.reason});
  }
  return table.empty() ? "no agent has connected yet\n" : table.text();
}

std::string agent_digest(const json::Value& agents, std::size_t max_named) {
  std::vector<Agent> bad;
  std::size_t connected = 0;
  std::size_t unseen = 0;
  std::size_t drained = 0;
  std::size_t slow = 0;
  for (const json::Value& value : agents) {
    Agent agent(value);
    connected += agent.connected ? 1 : 0;
    unseen += agent.never_heard() ? 1 : 0;
    drained += agent.drained ? 1 : 0;
    slow += agent.slow() ? 1 : 0;
    if (agent.urgency() > 0) {
      bad.push_back(std::move(agent));
    }
  }
  std::stable_sort(bad.begin(), bad.end(),
                   [](const Agent& a, const Agent& b) { return a.urgency() > b.urgency(); });

  std::string out = fmt::format("{}: {} connected, {} lost, {} not seen yet, {} slow, {} drained\n",
                                agents.size(), connected, agents.size() - connected - unseen,
                                unseen, slow, drained);
  for (std::size_t i = 0; i < std::min(bad.size(), max_named); ++i) {
    const Agent& agent = bad[i];
    out += fmt::format("  {}  {}", agent.node, agent.state());
    if (!agent.connected && !agent.never_heard()) {
      out += fmt::format(", silent for {}", format_seconds(agent.silent_s));
    }
    if (agent.slow()) {
      out += fmt::format(", slowdown {:.2f}", agent.slowdown);
    }
    if (!agent.reason.empty()) {
      out += fmt::format(" ({})", agent.reason);
    }
    out += "\n";
  }
  if (bad.size() > max_named) {
    out += fmt::format("  and {} more: `tapasctl node list`\n", bad.size() - max_named);
  }
  return out;
}

}  // namespace tapas::ctl
