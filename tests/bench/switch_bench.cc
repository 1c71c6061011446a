#include "base/wall_time.h"
#include "tests/bench/bench.h"
#include "tests/bench/fleet.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tapas::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kRounds = 12;

double wall_s(const json::Value& event) {
  const auto time = parse_wall_time(event["time"].get<std::string>());
  return time ? static_cast<double>(*time) * 1e-9 : 0;
}

/// What the twin says: when each step ended, and after which step each switch held the job.
struct Truth {
  std::map<std::int64_t, double> ended_s;     ///< by step, wall clock
  std::map<std::int64_t, std::int64_t> held;  ///< step by the epoch that followed
};

Truth read_truth(const std::string& path) {
  Truth truth;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto value = json::parse(line);
    if (!value) {
      continue;
    }
    if ((*value)["kind"] == "step") {
      truth.ended_s[(*value)["step"].get<std::int64_t>()] =
          (*value)["wall_ns"].get<double>() * 1e-9;
    } else if ((*value)["committed"] == true) {
      truth.held[(*value)["epoch"].get<std::int64_t>()] =
          (*value)["after_step"].get<std::int64_t>();
    }
  }
  return truth;
}

/// Seconds from the first slow step to the new plan everywhere, without what is waited for steps
/// (until the verdict, for others that are slow together, until the job holds) and without the
/// transfer: records on their way, the solver, the store, PREPARE and ARM, TRANSFER's votes,
/// COMMIT. Nothing when the events are not those of one whole switch.
std::optional<double> control_plane_s(const std::vector<json::Value>& events, const Truth& truth) {
  std::map<std::string, json::Value> by_name;  // The last of each.
  for (const json::Value& event : events) {
    const std::string kind = event["kind"].get<std::string>();
    by_name[kind == "switch_phase" ? event["evidence"].value("phase", "") : kind] = event;
  }
  for (const char* name : {"verdict", "decision", "ARM", "TRANSFER", "switch_done"}) {
    if (!by_name.contains(name)) {
      return std::nullopt;
    }
  }
  const json::Value& verdict = by_name["verdict"];
  const json::Value& decision = by_name["decision"];
  const json::Value& done = by_name["switch_done"];
  const auto judged =
      truth.ended_s.find(verdict["evidence"]["since_step"].get<std::int64_t>() +
                         verdict["evidence"]["detect_steps"].get<std::int64_t>() - 1);
  const std::string sentence = done["sentence"].get<std::string>();  // "plan 7 runs on ..."
  const auto held = truth.held.find(std::stoll(sentence.substr(sizeof "plan " - 1)));
  if (judged == truth.ended_s.end() || held == truth.held.end()) {
    return std::nullopt;
  }
  const double arm_s = wall_s(by_name["ARM"]);
  const double held_s = std::max(arm_s, truth.ended_s.at(held->second));
  const double moved_s = done["evidence"]["switch_s"].get<double>();
  const double collect_s = wall_s(verdict) - judged->second;
  const double decide_s = arm_s - wall_s(decision) + decision["evidence"].value("solve_s", 0.0);
  return collect_s + decide_s + (wall_s(done) - held_s - moved_s);
}

/// Slows one node after the other and waits for the switch that answers it.
std::vector<Measurement> control_plane() {
  FleetSpec spec;
  spec.nodes = 128;
  spec.config = {{"auto_replan", true},    {"cooldown_s", 0},         {"replans_per_hour", 3600},
                 {"flap_quarantine_s", 0}, {"min_gain_ratio", 0.001}, {"episode_prior_s", 36000}};
  Fleet fleet(spec);
  if (!Fleet::possible() || !fleet.start_daemon()) {
    std::fprintf(stderr, "switch.: not measured: no tapasd beside tapas-bench, or it ends\n");
    return {};
  }
  fleet.start_twins({"--report", fleet.report(0)});
  static_cast<void>(test::eventually([&] { return fleet.cluster().has_event("healthy"); }, 120s));

  std::int64_t last = 0;
  std::vector<json::Value> news;
  const auto look = [&](const char* kind) {
    const json::Value body =
        fleet.cluster().get(fmt::format("/v1/events?after={}&limit=1000", last)).body;
    for (const json::Value& event : body.is_object() ? body["events"] : json::Value::array()) {
      news.push_back(event);
      last = std::max(last, event["id"].get<std::int64_t>());
    }
    return std::any_of(news.begin(), news.end(),
                       [&](const json::Value& event) { return event["kind"] == kind; });
  };
  std::vector<std::vector<json::Value>> switches;
  for (int round = 0; round < kRounds; ++round) {
    const std::string node = fmt::format("load0-{:04}", (round * 37 + 5) % 128);
    static_cast<void>(look("switch_done"));
    news.clear();
    fleet.twin(0).say("slow " + node + " 2.5");
    if (test::eventually([&] { return look("switch_done"); }, 40s)) {
      switches.push_back(news);
    }
    fleet.twin(0).say("heal " + node);
    news.clear();
    // The way back is a switch as well; it starts with no verdict, so it does not count.
    static_cast<void>(test::eventually([&] { return look("switch_done"); }, 15s));
  }
  const Truth truth = read_truth(fleet.report(0));
  std::vector<double> times;
  for (const std::vector<json::Value>& events : switches) {
    if (const auto time_s = control_plane_s(events, truth)) {
      times.push_back(*time_s);
    }
  }
  if (times.empty()) {
    std::fprintf(stderr, "switch.: not measured: no switch of %zu was whole\n", switches.size());
    return {};
  }
  std::sort(times.begin(), times.end());
  return {{"switch.control_plane_1024", times.back(), "s", 1, true},
          {"switch.control_plane_1024_median", times[times.size() / 2], "s"},
          {"switch.control_plane_1024_switches", static_cast<double>(times.size()), ""}};
}

const Registration kSwitch("switch.control_plane", control_plane);

}  // namespace
}  // namespace tapas::bench
