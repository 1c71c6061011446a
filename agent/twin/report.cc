#include "agent/twin/report.h"

#include "base/json/json.h"
#include "base/median.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tapas::twin {

namespace {

// Microseconds are what records carry; more digits would only be noise.
double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

}  // namespace

Result<void> Report::open(const std::string& path) {
  file_.open(path, std::ios::trunc);
  if (!file_) {
    return fail(ErrorCode::kIo, "report {}: {}", path, std::strerror(errno));
  }
  return {};
}

void Report::write(const std::string& line) {
  if (file_.is_open()) {
    file_ << line << '\n' << std::flush;
  }
}

const std::string& Report::name(NodeId node) const { return cluster_.nodes[node.value()].name; }

/// What of the node is slow, with a blank before it; nothing for the whole node's compute.
std::string Report::part_of(const Fault& fault) const {
  if (fault.kind == Fault::Kind::kPath) {
    return " to " + name(fault.to);
  }
  const std::string device = fault.device ? fmt::format(" device {}", *fault.device) : "";
  return fault.kind == Fault::Kind::kCompute ? device
         : fault.kind == Fault::Kind::kInput ? device + " input"
                                             : fmt::format(" {}", amount_key(fault.kind));
}

std::string Report::describe(const std::vector<Fault>& faults) const {
  std::string text;
  for (const Fault& fault : faults) {
    const bool seconds = fault.kind == Fault::Kind::kInput;
    text += fmt::format("{}{}{} {}{:.3g}{}", text.empty() ? "" : ", ", name(fault.node),
                        part_of(fault), seconds ? "+" : "x", fault.amount, seconds ? " s" : "");
  }
  return text;
}

void Report::add(const FinishedStep& step, std::int64_t wall_ns) {
  if (step.flags == 0) {
    const auto key = std::make_pair(step.epoch, describe(step.faults));
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const auto& known) { return known.first == key; });
    if (group == groups_.end()) {
      group = groups_.insert(group, {key, {}});
    }
    group->second.push_back(step.truth.wall_s);
  }
  json::Value line = {{"kind", "step"},
                      {"step", step.step},
                      {"epoch", step.epoch},
                      {"job_time_s", rounded(step.end_s)},
                      {"step_time_s", rounded(step.truth.wall_s)},
                      {"flags", step.flags},
                      {"wall_ns", wall_ns}};
  line["replica_s"] = json::Value::array();
  for (const double replica_s : step.truth.replica_s) {
    line["replica_s"].push_back(rounded(replica_s));
  }
  line["slowed"] = json::Value::array();
  for (const Fault& fault : step.faults) {
    json::Value entry = json::Value::object();
    if (fault.kind == Fault::Kind::kPath) {
      entry["from"] = name(fault.node);
      entry["to"] = name(fault.to);
    } else {
      entry["node"] = name(fault.node);
    }
    entry[std::string(amount_key(fault.kind))] = fault.amount;
    if (fault.device) {
      entry["device"] = *fault.device;
    }
    line["slowed"].push_back(std::move(entry));
  }
  write(json::dump(line));
}

void Report::add(const FinishedSwitch& change) {
  switches_.push_back(change);
  write(json::dump({{"kind", "switch"},
                    {"from_epoch", change.from_epoch},
                    {"epoch", change.epoch},
                    {"committed", change.committed},
                    {"after_step", change.after_step},
                    {"pause_s", rounded(change.pause_s)},
                    {"bytes", std::round(change.bytes)}}));
}

std::string Report::summary() const {
  std::string text =
      fmt::format("{:>6} {:>6} {:>12}  {}\n", "epoch", "steps", "median step", "faults");
  for (const auto& [key, steps] : groups_) {
    text += fmt::format("{:>6} {:>6} {:>10.3f} s  {}\n", key.first, steps.size(), median(steps),
                        key.second.empty() ? "none" : key.second);
  }
  for (const FinishedSwitch& change : switches_) {
    text += fmt::format(
        "switch from epoch {} to {} after step {}: {}, paused {:.2f} s, moved {:.2f} GB\n",
        change.from_epoch, change.epoch, change.after_step,
        change.committed ? "committed" : "aborted", change.pause_s, change.bytes / 1e9);
  }
  return text;
}

}  // namespace tapas::twin
